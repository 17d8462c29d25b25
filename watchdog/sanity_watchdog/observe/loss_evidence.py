"""Evidence out of the numbers of a loss call that have arrived on the host."""

import math
from collections.abc import Iterator
from typing import Any

from ..evidence.base import Evidence
from ..evidence.first_loss import FirstLoss
from ..evidence.losses import BinaryLoss, DistanceLoss, DivergenceLoss, LossSeen, SoftmaxLoss
from ..evidence.readings import Scalars, Vital
from ..evidence.targets import TargetRange
from . import alignments, self_pairs
from .loss_facts import FACTOR, Facts, Tags, Values, factor_of

BITS = 1 / math.log(2)
LOG_ERROR = 0.1
"""Largest logsumexp of log-probabilities in half precision; scores that are further off have no expected loss."""


def evidence_of(facts: Facts, values: Values, tags: Tags) -> Iterator[Evidence]:
    """What the call shows: itself, and the range of its targets."""
    if facts.kind == "alignment":
        yield from alignments.evidence(facts, values, tags)
        return
    outside = facts.function == "binary_cross_entropy" and not (
        values.get("low", 0) >= 0 and values.get("high", 1) <= 1
    )
    if facts.kind != "scores" and (outside or not facts.error):
        yield _seen(facts, values, tags)
    if outside and facts.error:
        return
    judged = ("softmax",) if facts.weighed else ("softmax", "binary", "signed", "counts")
    if facts.kind in judged and (facts.error or "label_low" in values):
        yield target_range(facts, values, tags)


def _seen(facts: Facts, values: Values, tags: Tags) -> LossSeen:
    def get(name: str, default: float = math.nan) -> float:
        return values.get(name, default)

    common: dict[str, Any] = {
        "function": facts.function,
        "where": facts.where,
        "shape": facts.shape,
        "target_shape": facts.target_shape,
        "dtype": facts.dtype,
        "reduction": facts.reduction,
        "value": get("value"),
        "low": get("low"),
        "high": get("high"),
        "origin": facts.origin,
        "followed": facts.followed,
        "raw": facts.raw,
        "error": facts.error,
        "negated": facts.negated(values),
        **tags,
    }
    if facts.kind == "softmax" and "k" in values:
        return SoftmaxLoss(
            classes=int(values["k"]),
            axis=facts.axis,
            rows=int(get("rows", 0)),
            sum_error=get("sum_error"),
            column_error=get("column_error"),
            log_error=get("log_error"),
            zeros=get("zeros", 0.0),
            logs=facts.logs,
            soft=facts.soft,
            crossed=facts.crossed,
            repeated=facts.repeated,
            itself=self_pairs.role(values),
            perfect=get("perfect", math.nan if facts.soft or facts.smoothing else 0.0),
            mass=values["if_uniform"] / math.log(values["k"]) if "if_uniform" in values and values["k"] > 1 else 0.0,
            **common,
        )
    if facts.kind == "binary" and "zeros" in values:
        logits = facts.function != "binary_cross_entropy"
        return BinaryLoss(
            logits=logits,
            zeros=values["zeros"],
            edges=values["edges"],
            perfect=get("perfect", 0.0),
            terms=get("terms", 0.0),
            together=get("together", math.nan),
            **common,
        )
    if facts.kind == "divergence" and "log_error" in values:
        return DivergenceLoss(
            log_error=values["log_error"],
            sum_error=values["sum_error"],
            target_low=values["label_low"],
            target_high=values["label_high"],
            log_target=facts.log_target,
            **common,
        )
    if facts.kind == "distance" and "label_low" in values:
        if not facts.weighed:
            common |= {name: values[name] for name in ("negative", "above_one", "below_minus_one")}
        low, high = values["label_low"], values["label_high"]
        return DistanceLoss(zeros=values["zeros"], target_low=low, target_high=high, **common)
    return LossSeen(**common)


def target_range(facts: Facts, values: Values, tags: Tags) -> TargetRange:
    """The targets of a call."""
    labels = facts.kind == "softmax" and not facts.soft
    total = math.prod(facts.target_shape)
    valid = int(values.get("valid", total))
    return TargetRange(
        function=facts.function,
        where=facts.where,
        classes=int(values.get("k", 0)) if labels else 0,
        low=values.get("label_low", math.nan) if valid else math.nan,
        high=values.get("label_high", math.nan) if valid else math.nan,
        ignore_index=facts.ignore_index if labels else None,
        valid=valid,
        total=total,
        reduction=facts.reduction,
        dtype=facts.target_dtype,
        shape=facts.target_shape,
        input_shape=facts.shape,
        whole_samples=facts.whole_samples,
        sum_low=values.get("sum_low", math.nan),
        sum_high=values.get("sum_high", math.nan),
        error=facts.error,
        **tags,
    )


def first_loss(facts: Facts, values: Values, tags: Tags) -> FirstLoss | None:
    """The loss before training against a guess, where there is one to compare with."""
    if facts.kind == "returned":
        return _returned(facts, values, tags)
    if "seen" not in values or not (values.get("k", 2) > 1):
        return None
    k = int(values.get("k", 0))
    error = values.get("row_log_error", values["log_error"] if facts.function == "nll_loss" else 0.0)
    if not error <= LOG_ERROR:
        return None
    targets = int(values.get("targets", 0))
    factor = factor_of(values)
    by_hand = facts.reduction == "mean" and targets > 1 and abs(factor / targets - 1) < FACTOR
    summed = facts.as_sum and (facts.reduction == "sum" or (facts.reduction == "none" and len(facts.target_shape) > 0))
    expected = values.get("uniform", math.log(k or 2))
    if math.isnan(expected):
        return None
    apart = facts.kind == "divergence" or (facts.kind == "binary" and "uniform" in values)
    return FirstLoss(
        kind=facts.kind,
        function=facts.function,
        where=facts.where,
        reduction=facts.reduction,
        reported=values.get("value", math.nan),
        if_uniform=values.get("if_uniform", math.nan),
        if_constant=values.get("if_constant", math.nan),
        seen=values["seen"],
        expected=expected,
        name="equal probabilities" if apart else f"ln {round(math.exp(expected)):,}",
        standard_error=values["standard_error"],
        targets=targets,
        samples=int(values["samples"]),
        classes=k,
        spread=values.get("spread", math.nan),
        common=values.get("common", math.nan),
        top_class=int(values.get("top_class", -1)),
        fit=values.get("fit", math.nan),
        prior=values.get("prior", math.nan),
        contrastive=_are_positions(facts, values),
        cosine=facts.cosine,
        derived=facts.function == "binary_cross_entropy" and facts.origin is None,
        undivided=summed or by_hand,
        in_bits=facts.reduction == "mean" and abs(factor / BITS - 1) < FACTOR,
        rate=facts.rate,
        clipped=facts.clipped,
        head=facts.head,
        head_scale=values.get("head_scale", math.nan),
        resumed=facts.resumed,
        **tags,
    )


def _are_positions(facts: Facts, values: Values) -> bool:
    """Are the labels 0, 1, 2, …, all 0, or a permutation of the candidates?"""
    all_first = bool(values.get("first_only", 0)) and facts.shape[:1] != (1,)
    permuted = values.get("distinct", 0) == values.get("valid", 1) == values.get("k", 2)
    return bool(values.get("positions", 0)) or all_first or permuted


def _returned(facts: Facts, values: Values, tags: Tags) -> FirstLoss | None:
    classes, loss = facts.given
    if classes is None and loss is None:
        return None
    expected = loss if loss is not None else math.log(classes or 1)
    return FirstLoss(
        kind="returned",
        function="training_step",
        reported=values["value"],
        seen=values["value"],
        expected=expected,
        name=f"ln {classes:,}" if loss is None else "expected_loss",
        classes=classes or 0,
        resumed=facts.resumed,
        **tags,
    )


def opening(facts: Facts, values: Values, started: FirstLoss | None, tags: Tags) -> Iterator[Evidence]:
    """What the closing line and the two scalars say of the first loss."""
    if started is None:
        value = values.get("value", math.nan)
        name = "" if facts.kind in ("returned", "other") else f" ({facts.function})"
        yield Vital(key="loss", text=f"first loss {value:.4g}{name}", **tags)
        yield Scalars(values={"first_loss": value}, **tags)
        return
    each = " per output" if facts.kind == "binary" else ""
    total = f", {started.reported:.4g} as a sum over {started.targets:,}" if facts.reduction == "sum" else ""
    equals = f"{started.name} = {started.expected:.3f}"
    yield Vital(key="loss", text=f"first loss {started.seen:.3f}{each} ({equals}{total})", **tags)
    error = {"first_loss_error": started.standard_error} if math.isfinite(started.standard_error) else {}
    yield Scalars(values={"first_loss": started.seen, "ln_k": started.expected, **error}, **tags)
