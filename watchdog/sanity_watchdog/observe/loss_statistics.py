"""Numbers about one loss call, on its device, of a bounded number of scores. Nothing here reads the device."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import alignments, bounded, expected, self_pairs
from .bounded import Numbers, class_axis, edge_share, ends, few_rows, jointly, thinned, zero_share
from .calls import LossCall
from .loss_kinds import BINARY_LOSSES, CLASS_LOSSES, COUNTS, DISTANCES, LABELS, SIGNED

MASKED = -9e3
"""Scores at or below this are closed classes (masks use -1e4, -1e9 or -inf), not opinions."""
LARGE, NEVER = 1e3, -1e30
"""Open scores beyond ``LARGE`` show a scale at which -1e4 is a score like others."""
LEAST_LOG = -100.0
"""Where ``binary_cross_entropy`` stops taking logarithms."""


def measure(call: LossCall, *, full: bool = True) -> Numbers:
    """Scalar tensors about ``call``; empty where its arguments are none that could be judged.

    ``full`` compares with what a guess would cost, too: that is for the first steps only.
    """
    scores, target = call.input, call.target
    if isinstance(target, Tensor) and target.dtype in LABELS:
        target = target.long()
    if not isinstance(scores, Tensor) or not scores.numel():
        return {}
    numbers: Numbers = {}
    if isinstance(call.value, Tensor) and call.value.numel():
        numbers["value"] = call.value.detach().float().mean()
    if call.name == alignments.NAME:
        return numbers | alignments.measure(call)
    if not isinstance(target, Tensor) or not target.numel():
        return numbers
    if call.name in CLASS_LOSSES and (target.is_floating_point() or target.dtype in LABELS):
        return numbers | _classes(call, scores.detach(), target.detach(), full)
    if call.name in BINARY_LOSSES and scores.shape == target.shape:
        return numbers | _binary(call, scores.detach(), target.detach(), full)
    if call.name == "kl_div" and scores.shape == target.shape:
        return numbers | _divergence(call, scores.detach(), target.detach())
    if call.name in DISTANCES:
        prediction, truth = (target, scores) if target.requires_grad and not scores.requires_grad else (scores, target)
        return numbers | distance(prediction, truth)
    if call.name in (*SIGNED, *COUNTS):
        return numbers | ends(target, "label_")
    return numbers


def _classes(call: LossCall, scores: Tensor, target: Tensor, full: bool) -> Numbers:
    options = call.arguments
    ignore = options.get("ignore_index")
    ignore = -100 if ignore is None else int(ignore)
    axis = class_axis(scores)
    if call.name == "linear_cross_entropy":
        weight = options["linear_weight"].detach()
        axis, k = scores.ndim - 1, weight.shape[0]
        rows = scores.reshape(-1, scores.shape[-1])
        step = max(1, math.ceil(len(rows) * k / bounded.LIMIT))
        part = F.linear(rows[::step], weight, options.get("linear_bias"))
        truth = target.reshape(-1)[::step]
    else:
        k = scores.shape[axis]
        part, cut = few_rows(scores, axis)
        soft = target.is_floating_point()
        fits = target.shape == (scores.shape if soft else scores.movedim(axis, -1).shape[:-1])
        if not fits:
            return {"k": _number(k, scores)} | ({} if soft else labels(target, ignore))
        truth = target.movedim(axis, -1)[cut] if soft else target[cut]
    if call.error:
        return {"k": _number(k, scores)} | ({} if target.is_floating_point() else labels(target, ignore))
    numbers = {"k": _number(k, scores)} | _shape_of_rows(part, whole=part.numel() == scores.numel())
    numbers |= {"zeros": zero_share(part)}
    if target.is_floating_point():
        sums = truth.float().sum(-1)
        numbers |= ends(truth, "label_") | {"sum_low": sums.amin(), "sum_high": sums.amax()}
    else:
        numbers |= labels(target, ignore)
    if not full:
        return numbers
    smoothing = options.get("label_smoothing", 0.0)
    numbers |= _references_of_classes(target, k, axis, options.get("weight"), ignore, smoothing, _reduction(call))
    return numbers | _excess(part.float(), truth, ignore) | self_pairs.measure(scores, target)


def _references_of_classes(
    target: Tensor, k: int, axis: int, weight: Tensor | None, ignore: int, smoothing: float, reduction: str
) -> Numbers:
    """References of a call, estimated from a part where there are very many targets."""
    if target.numel() <= bounded.LIMIT:
        return _references(expected.cross_entropy(target, k, axis, weight, ignore, smoothing, reduction))
    if target.is_floating_point():
        return {"targets": _number(target.numel() // k, target)}
    flat = target.reshape(-1)
    step = -(-len(flat) // bounded.LIMIT)
    numbers = _references(expected.cross_entropy(flat[::step], k, axis, weight, ignore, smoothing, reduction))
    factor = step if reduction == "sum" else 1
    numbers = {name: number * factor for name, number in numbers.items()} | {"targets": (flat != ignore).sum()}
    return numbers if not smoothing else numbers | {"perfect": _number(math.nan, target)}


def _references(reference: expected.Reference) -> Numbers:
    return {
        "targets": reference.targets,
        "perfect": reference.perfect,
        "if_uniform": reference.uniform,
        "if_constant": reference.prior,
    }


def labels(target: Tensor, ignore: int) -> Numbers:
    """Range and count of hard labels, and whether they are positions of candidates instead of classes."""
    flat = target.reshape(-1)
    bounds = torch.iinfo(flat.dtype)
    lows, highs, valid = [], [], []
    for part in torch.split(flat, bounded.LIMIT):
        counts = part != ignore
        lows.append(torch.where(counts, part, bounds.max).amin())
        highs.append(torch.where(counts, part, bounds.min).amax())
        valid.append(counts.sum())
    few = flat[:: max(1, len(flat) // bounded.LIMIT)]
    first = flat[: bounded.LIMIT]
    return {
        "label_low": torch.stack(lows).amin(),
        "label_high": torch.stack(highs).amax(),
        "valid": torch.stack(valid).sum(),
        "distinct": bounded.distinct(few),
        "positions": (first == torch.arange(len(first), device=flat.device)).all() & (first[-1] > 0),
        "first_only": (few == 0).all(),
    }


def _shape_of_rows(part: Tensor, whole: bool) -> Numbers:
    """Do rows ``(…, k)`` look like probabilities, log-probabilities or logits?"""
    z = part.reshape(-1, part.shape[-1]).float()
    low, high = z.aminmax()
    numbers = {
        "low": low,
        "high": high,
        "sum_error": (z.sum(1) - 1).abs().amax(),
        "log_error": z.logsumexp(1).abs().amax(),
        "rows": _number(len(z), part),
    }
    if whole and part.ndim == 2:
        numbers["column_error"] = (z.sum(0) - 1).abs().amax()
    return numbers


def _excess(z: Tensor, truth: Tensor, ignore: int) -> Numbers:
    """The loss of each row as ln k + spread + fit, with one residual per sample for the standard error."""
    k = z.shape[-1]
    is_open = ~(z <= closed_below(z))
    width = is_open.sum(-1).clamp_min(1)
    mean = torch.where(is_open, z, 0.0).sum(-1) / width
    uniform = width.float().log()
    spread = z.logsumexp(-1) - mean - uniform
    if truth.is_floating_point():
        q = truth.float()
        mass = q.sum(-1)
        counts = torch.ones_like(mass, dtype=torch.bool)
        own = torch.where(q > 0, q * z, 0.0).sum(-1)
        fit = mean * mass - own
        spread = spread * mass + (mass - 1) * uniform
        prior = expected.xlogx(mass.sum()) - expected.xlogx(q.reshape(-1, k).sum(0)).sum()
    else:
        counts = (truth != ignore) & (truth >= 0) & (truth < k)
        own = z.gather(-1, truth.clamp(0, k - 1).unsqueeze(-1)).squeeze(-1)
        fit = mean - own
        c = expected.class_counts(torch.where(counts, truth, k).reshape(-1), k)
        prior = expected.xlogx(c.sum()) - expected.xlogx(c).sum()
    n = counts.sum()
    loss = torch.where(counts, uniform + spread + fit, 0.0)
    seen = loss.sum() / n
    column = torch.where(is_open, z, 0.0).reshape(-1, k).mean(0)
    return {
        "uniform": torch.where(counts, uniform, 0.0).sum() / n,
        "seen": seen,
        "spread": torch.where(counts, spread, 0.0).sum() / n,
        "fit": torch.where(counts, fit, 0.0).sum() / n,
        "prior": prior / n,
        "common": column.logsumexp(0) - column.mean() - math.log(k),
        "top_class": column.argmax(),
    } | standard_error(loss, counts)


def closed_below(z: Tensor) -> Tensor:
    """Scores at or below this are closed classes. Where others are of that size, too, only infinity is."""
    high = torch.where(z > MASKED, z.abs(), 0.0).amax()
    return torch.full_like(high, MASKED, dtype=torch.float32).masked_fill_(high > LARGE, NEVER)


def scores_alone(scores: Tensor, axis: int) -> Numbers:
    """What scores without known labels tell: labels drawn at random would cost ``seen``, within ``standard_error``."""
    part, _ = few_rows(scores, axis)
    z = part.reshape(-1, part.shape[-1]).float()
    spread = z.logsumexp(-1) - z.mean(-1) - math.log(z.shape[-1])
    column = z.mean(0)
    n = _number(len(z), z)
    return {
        "k": _number(z.shape[-1], z),
        "seen": math.log(z.shape[-1]) + spread.mean(),
        "spread": spread.mean(),
        "common": column.logsumexp(0) - column.mean() - math.log(z.shape[-1]),
        "top_class": column.argmax(),
        "samples": n,
        "standard_error": (z.var(-1, correction=0).mean() / n).sqrt(),
    }


def standard_error(loss: Tensor, counts: Tensor) -> Numbers:
    """Of the mean of ``loss`` (0 where not counted): pixels and tokens of one sample are not independent.

    With a single sample its rows stand in, and the error is doubled.
    """
    if loss.ndim > 1 and loss.shape[0] > 1:
        loss, m, factor = loss.flatten(1).sum(1), counts.flatten(1).sum(1).float(), 1.0
    else:
        factor = 2.0 if loss.ndim > 1 else 1.0
        loss, m = loss.reshape(-1), counts.reshape(-1).float()
    n = m.sum()
    residual = loss - loss.sum() / n * m
    samples = (m > 0).sum()
    error = factor * residual.square().sum().sqrt() / n * (samples / (samples - 1)).sqrt()
    return {"standard_error": torch.where(samples > 1, error, math.nan), "samples": samples}


def _binary(call: LossCall, scores: Tensor, target: Tensor, full: bool) -> Numbers:
    weight = call.arguments.get("weight")
    judged = target if weight is None else target.where(weight.detach() != 0, target.new_zeros(()))
    numbers = ends(scores) | ends(judged, "label_") | {"zeros": zero_share(scores)}
    numbers["edges"] = edge_share(scores, numbers)
    if not full or (call.name == "multilabel_soft_margin_loss" and _reduction(call) != "mean"):
        return numbers  # which is a mean over the classes all the same
    step = max(1, scores.numel() // bounded.LIMIT)
    z = (scores[::step] if scores.ndim else scores.reshape(1)).float()
    y = (target[::step] if target.ndim else target.reshape(1)).float()
    numbers["together"] = y.sum(-1).amax()
    if call.name == "binary_cross_entropy":
        p = z.clamp(0, 1)
        sure, doubt = (log.clamp_min(LEAST_LOG) for log in (p.log(), torch.log1p(-p)))
        z, loss = sure - doubt, -(y * sure + (1 - y) * doubt)
    else:
        loss = F.softplus(z) - y * z
    options = call.arguments
    if target.numel() <= bounded.LIMIT:
        weights = options.get("weight"), options.get("pos_weight")
        numbers |= _references(expected.binary_cross_entropy(target, *weights, _reduction(call)))
        if call.name != "binary_cross_entropy":
            sizes = expected.binary_terms(z, y, *weights)
            numbers["terms"] = sizes.sum() if _reduction(call) == "sum" else sizes.mean()
    rate = y.mean()
    numbers |= {"targets": _number(target.numel(), target), "seen": loss.mean()}
    if call.origin is not None and call.origin.axis is not None:
        k = max(call.origin.shape[call.origin.axis], 2)
        numbers["uniform"] = (y * math.log(k) - (1 - y) * math.log1p(-1 / k)).mean()
    numbers |= {"prior": -(expected.xlogx(rate) + expected.xlogx(1 - rate)), "spread": z.std(), "common": z.mean()}
    return numbers | standard_error(loss, torch.ones_like(loss, dtype=torch.bool))


def _divergence(call: LossCall, scores: Tensor, target: Tensor) -> Numbers:
    part, cut = few_rows(scores, scores.ndim - 1)
    z, given = part.float(), target[cut].float()
    log_target = bool(call.arguments.get("log_target"))
    t = given.exp() if log_target else given.clamp_min(0)
    whole = [z.movedim(a, -1) for a in range(z.ndim)] + [joint.float() for joint in jointly(scores)]
    logs = torch.stack([w.logsumexp(-1).abs().amax() for w in whole])
    sums = torch.stack([(w.sum(-1) - 1).abs().amax() for w in whole])
    numbers = ends(scores) | ends(target, "label_") | {"log_error": logs.amin(), "sum_error": sums.amin()}
    numbers |= _references(expected.kl_div(t, _reduction(call)))
    loss = (expected.xlogx(t) - t * z).sum(-1)
    uniform = (expected.xlogx(t).sum(-1) + math.log(z.shape[-1]) * t.sum(-1)).mean()
    numbers |= {"row_log_error": logs[z.ndim - 1], "rows": _number(loss.numel(), z)}
    numbers |= {"uniform": uniform, "seen": loss.mean()}
    return numbers | standard_error(loss, torch.ones_like(loss, dtype=torch.bool))


def distance(prediction: Tensor, truth: Tensor) -> Numbers:
    """Numbers about the call of a regression loss, whatever it makes of the differences."""
    y = thinned(truth)
    shares = {"negative": y < 0, "above_one": y > 1, "below_minus_one": y < -1}
    numbers = {name: share.float().mean() for name, share in shares.items()}
    return numbers | ends(prediction) | ends(truth, "label_") | {"zeros": zero_share(prediction)}


def _reduction(call: LossCall) -> str:
    return str(call.arguments.get("reduction", "mean"))


def _number(value: float, like: Tensor) -> Tensor:
    return torch.full((), float(value), dtype=torch.float32, device=like.device)


def head_scale(weight: Any) -> Tensor:
    """rms of a weight ``(outputs, inputs, …)`` times the square root of its inputs; 1/√3 for torch's default."""
    return thinned(weight).float().square().mean().sqrt() * math.sqrt(weight[0].numel())
