"""How the targets of a language model lie beside the ids that went in. On the device; bounded."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..evidence.targets import TokenTargets
from .bounded import LIMIT, Numbers, distinct
from .calls import LossCall, Trace
from .loss_kinds import CLASS_LOSSES, LABELS
from .moment import Moment
from .objective import may_be_weighed
from .observer import is_plain

SHIFTS = (-1, 0, 1, 2)
RELATED = 0.5
"""Agreement at some offset that makes targets the next, same or previous tokens of these ids at all."""
ALIGNED = 0.95
ABSENT = -1
VARIED = 4
"""Different ids below which two rows of ids say nothing (segment ids, masks)."""


def ask(at: Moment, trace: Trace, calls: list[LossCall], loss: Tensor | None) -> None:
    """Ask for what is known of the targets of ``calls`` beside the ids of this step, whose loss is ``loss``."""
    if not all(map(is_plain, trace.ids)):
        return
    with torch.no_grad():
        measured = [(call, measure(call, trace, may_be_weighed(loss, call.value))) for call in calls]
    rows = [numbers for _, several in measured for numbers in several]
    if not rows:
        return
    about = [(c.name, c.where, trace.ids[0].shape[-1], len(several)) for c, several in measured]
    names, tags = tuple(rows[0]), at.tags()

    def read(arrived: Mapping[str, Tensor]) -> Iterator[TokenTargets]:
        left = iter(arrived["rows"].tolist())
        yield from evidence(
            [
                (function, where, length, [dict(zip(names, next(left), strict=True)) for _ in range(n)])
                for function, where, length, n in about
            ],
            trace.causal and not trace.looks_ahead and at.stage == "train",
            tags,
        )

    at.ask({"rows": torch.stack([torch.stack([n[k].float() for k in names]) for n in rows])}, read)


def measure(call: LossCall, trace: Trace, weighed: bool = False) -> list[Numbers]:
    """One entry for each embedding whose ids could belong to the call's targets; ``weighed``: a mask may follow."""
    target = call.target
    if call.name not in CLASS_LOSSES or not isinstance(target, Tensor) or target.dtype not in LABELS:
        return []
    ignore = call.arguments.get("ignore_index")
    ignore = -100 if ignore is None else int(ignore)
    found = (_beside(target.long(), ids.long(), ignore) for ids in trace.ids)
    weighed |= call.arguments.get("weight") is not None  # which may leave padding out
    rest = dict.fromkeys(("padding", "labelled"), torch.zeros((), device=target.device)) if weighed else {}
    return [numbers | rest for numbers in found if numbers]


def _beside(target: Tensor, ids: Tensor, ignore: int) -> Numbers:
    if ids.ndim != 2 or not target.numel() or target.numel() % ids.shape[0]:
        return {}
    rows, length = ids.shape
    y = target.reshape(rows, -1)
    if not length - 2 <= y.shape[1] <= length + 1 or min(length, y.shape[1]) < max(SHIFTS) + 2:
        return {}
    keep = max(1, LIMIT // length)
    y, ids = y[:keep], ids[:keep]
    counts = y != ignore
    numbers = {str(s): _agreement(y, ids, counts, s) for s in SHIFTS}
    numbers["distinct"] = distinct(ids)
    left_out = ids.where(~counts, ids.new_full((), ABSENT)) if y.shape == ids.shape else ids.new_full((1,), ABSENT)
    numbers["left_out"] = distinct(left_out) - 1
    labelled = _labelled(y, ids, counts) if y.shape == ids.shape else counts.sum().new_zeros(())
    shifted = ~counts[:, -1].any()  # labels shifted by filling up with what is ignored: the rows end one earlier
    y, counts = y.roll(1, 1).where(shifted, y), counts.roll(1, 1).where(shifted, counts)
    last = y[:, -1:]
    run = ((y == last) & counts).flip(1).long().cumprod(1).sum(1)
    run = torch.where(run > 1, run, 0)
    token = torch.where(run > 0, last[:, 0], ignore).mode().values
    same = (last[:, 0] == token) & (token != ignore)
    valid, ending = counts.sum(), torch.where(same, run, 0).sum()
    elsewhere = ((y == token) & counts).sum() - ending
    return numbers | {
        "padding": ending / valid,
        "inside": elsewhere / (valid - ending).clamp(min=1),
        "token": token,
        "valid": valid,
        "labelled": labelled,
    }


def _labelled(y: Tensor, ids: Tensor, counts: Tensor) -> Tensor:
    """Share of the targets that count whose id is the padding, if all of them are one label; else 0."""
    token = ids[:, -1].mode().values
    same = ids == token
    run = same.flip(1).long().cumprod(1).flip(1).bool()
    lengths = run.sum(1)
    alone = (same == run).all() & (lengths.amax() > lengths.amin()) & (lengths.amax() > 1)
    low = torch.where(run, y, y.amax()).amin()
    high = torch.where(run, y, y.amin()).amax()
    one = (low == high) & (counts | ~run).all()
    return torch.where(alone & one, (run & counts).sum() / counts.sum(), 0.0)


def _agreement(y: Tensor, ids: Tensor, counts: Tensor, shift: int) -> Tensor:
    """Share of the targets that count which equal the id ``shift`` positions later."""
    start, end = max(0, -shift), min(y.shape[1], ids.shape[1] - shift)
    ok = counts[:, start:end]
    equal = (y[:, start:end] == ids[:, start + shift : end + shift]) & ok
    return equal.sum() / ok.sum()


def evidence(
    calls: list[tuple[str, str, int, list[dict[str, float]]]], causal: bool, tags: Mapping[str, Any]
) -> Iterator[TokenTargets]:
    """One piece per call, given ``(function, where, length, numbers of each embedding)``."""
    found = []
    for function, where, length, embeddings in calls:
        varied = [e for e in embeddings if e["distinct"] >= VARIED]
        if not varied:
            continue
        agreement = {s: max(e[str(s)] for e in varied) for s in SHIFTS}
        related = max(agreement.values()) >= RELATED
        best = max(varied, key=lambda e: e["padding"])
        found.append(
            TokenTargets(
                function=function,
                where=where,
                causal=causal,
                length=length,
                valid=int(best["valid"]),
                agreement=tuple(agreement.items()),
                padding=best["padding"] if related else 0.0,
                inside=best["inside"],
                labelled=max(e["labelled"] for e in varied),
                token=int(best["token"]),
                distinct=int(max(e["distinct"] for e in varied)),
                left_out=int(max(varied, key=lambda e: e["0"])["left_out"]),
                **tags,
            )
        )
    aligned = [dict(f.agreement)[1] >= ALIGNED for f in found]
    for i, one in enumerate(found):
        elsewhere = any(a for j, a in enumerate(aligned) if j != i)
        yield TokenTargets(**{**vars(one), "elsewhere": elsewhere}) if elsewhere else one
