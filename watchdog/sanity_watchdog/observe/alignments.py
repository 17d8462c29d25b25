"""Numbers about a call of ``ctc_loss``, on its device, and the evidence out of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..evidence.alignments import AlignmentLoss, AlignmentTargets
from ..evidence.base import Evidence
from ..evidence.targets import TokenTargets
from .bounded import LIMIT, Numbers, distinct, few_rows
from .calls import LossCall

if TYPE_CHECKING:
    from .loss_facts import Facts

NAME = "ctc_loss"
VARIED = 4
"""Different letters below which a run of one of them says nothing about padding."""


@dataclass(frozen=True)
class Options:
    """What is known of a call without its tensors. ``lengths``: how many input lengths were given."""

    blank: int
    zero_infinity: bool
    lengths: int

    @classmethod
    def of(cls, call: LossCall) -> "Options | None":
        """None where it is no call of ``ctc_loss``."""
        if call.name != NAME:
            return None
        given = call.arguments
        lengths = given.get("input_lengths")
        count = lengths.numel() if isinstance(lengths, Tensor) else torch.tensor(lengths).numel()
        return cls(int(given.get("blank", 0)), bool(given.get("zero_infinity")), count)


def _lengths(value: Any, device: torch.device) -> Tensor:
    tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(value)
    return tensor.reshape(-1).to(device).long()


def measure(call: LossCall) -> Numbers:
    """Scalar tensors about the call; fewer where its shapes do not fit each other."""
    given = call.arguments
    log_p, letters = given["log_probs"].detach(), given["targets"].detach()
    log_p = log_p if log_p.ndim == 3 else log_p.unsqueeze(1)
    steps, samples = log_p.shape[:2]
    inputs, sizes = (_lengths(given[n], log_p.device) for n in ("input_lengths", "target_lengths"))
    numbers: Numbers = {"longest": inputs.amax()}
    if call.error or len(inputs) != samples or len(sizes) != samples:
        return numbers
    numbers |= _rows(log_p, torch.arange(steps, device=log_p.device)[:, None] < inputs)
    y = _padded(letters.to(log_p.device).long(), sizes, given["target_lengths"])
    if y is None or not y.numel():
        return numbers
    return numbers | _letters(y, sizes, inputs, int(given.get("blank", 0)))


def _rows(log_p: Tensor, counts: Tensor) -> Numbers:
    part, cut = few_rows(log_p, 2)
    z, counts = part.float(), counts[cut]
    return {
        "low": z.amin(-1).where(counts, torch.inf).amin(),
        "high": z.amax(-1).where(counts, -torch.inf).amax(),
        "sum_error": (z.sum(-1) - 1).abs().where(counts, 0.0).amax(),
        "log_error": z.logsumexp(-1).abs().where(counts, 0.0).amax(),
        "rows": counts.sum(),
    }


def _padded(letters: Tensor, sizes: Tensor, given: Any) -> Tensor | None:
    """Targets ``(samples, letters)``, whichever of their two forms they have; None where that would be too large."""
    if letters.ndim == 2:
        return letters
    if len(sizes) == 1:
        return letters[None]
    on_host = not isinstance(given, Tensor) or given.device.type == "cpu"
    width = int(sizes.amax()) if on_host else min(len(letters), LIMIT // len(sizes))
    place = (sizes.cumsum(0) - sizes)[:, None] + torch.arange(width, device=letters.device)
    return letters[place.clamp(max=len(letters) - 1)] if len(letters) and place.numel() <= LIMIT else None


def _letters(y: Tensor, sizes: Tensor, inputs: Tensor, blank: int) -> Numbers:
    counts = torch.arange(y.shape[1], device=y.device) < sizes[:, None]
    twice = (y[:, 1:] == y[:, :-1]) & counts[:, 1:]
    bounds = torch.iinfo(y.dtype)
    last = y.gather(1, (sizes - 1).clamp(0, y.shape[1] - 1)[:, None])
    ending = ((y == last) | ~counts).flip(1).long().cumprod(1).flip(1).bool() & counts
    token = last[:, 0].where(sizes > 0, -1).mode().values
    run = ending.sum(1)
    padding = (run > 1) & (run < sizes) & (last[:, 0] == token)  # a row of nothing else is data
    runs = run.where(padding, 0).sum()
    is_blank = (y == blank) & counts
    return {
        "label_low": y.where(counts, bounds.max).amin(),
        "label_high": y.where(counts, bounds.min).amax(),
        "valid": counts.sum(),
        "blanks": is_blank.sum(),
        "ending": (ending & is_blank).sum(),
        "too_long": (sizes + twice.sum(1) > inputs).sum(),
        "token": token,
        "runs": runs,
        "distinct": distinct(y.where(counts, blank)),
        "width": sizes.amax(),
    }


def evidence(facts: "Facts", values: Mapping[str, float], tags: Mapping[str, Any]) -> Iterator[Evidence]:
    """What the call shows: its log-probabilities, its targets, and whether these end in padding."""
    options, shape = facts.alignment, facts.shape if len(facts.shape) == 3 else (*facts.shape[:1], 1, *facts.shape[1:])
    if options is None or len(shape) != 3:
        return
    valid = int(values.get("valid", 0))
    common: dict[str, Any] = {
        "function": facts.function,
        "where": facts.where,
        "reduction": facts.reduction,
        "error": facts.error,
    }
    yield AlignmentLoss(
        shape=shape,
        dtype=facts.dtype,
        value=values.get("value", torch.nan),
        low=values.get("low", torch.nan),
        high=values.get("high", torch.nan),
        origin=facts.origin,
        followed=facts.followed,
        negated=facts.negated(values),
        classes=shape[2],
        rows=int(values.get("rows", 0)),
        sum_error=values.get("sum_error", torch.nan),
        log_error=values.get("log_error", torch.nan),
        logs=facts.logs,
        lengths=options.lengths,
        **common,
        **tags,
    )
    if options.lengths == shape[1]:
        yield AlignmentTargets(
            classes=shape[2],
            low=values["label_low"] if valid else torch.nan,
            high=values["label_high"] if valid else torch.nan,
            valid=valid,
            total=valid,
            input_shape=shape,
            blank=options.blank,
            blanks=int(values.get("blanks", 0)),
            ending=int(values.get("ending", 0)),
            samples=shape[1],
            too_long=int(values.get("too_long", 0)),
            steps=shape[0],
            longest=int(values.get("longest", 0)),
            zero_infinity=options.zero_infinity,
            **common,
            **tags,
        )
    if valid and values["distinct"] >= VARIED and values["token"] != options.blank and shape[1] > 1:
        yield TokenTargets(
            function=facts.function,
            where=facts.where,
            length=int(values["width"]),
            valid=valid,
            padding=values["runs"] / valid,
            token=int(values["token"]),
            distinct=int(values["distinct"]),
            **tags,
        )
