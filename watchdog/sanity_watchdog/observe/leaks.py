"""Does a column of a table tell the label that is to be predicted?"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .calls import LossCall
from .observer import is_plain

MOST_CLASSES = 64
"""Classes whose members are compared."""
MOST = 1 << 18
"""Elements of the table: larger ones are not looked at."""
FEWEST = 16
"""Samples below which agreement may be chance."""
CLASSIFYING = ("cross_entropy", "nll_loss", "binary_cross_entropy_with_logits", "binary_cross_entropy")
REGRESSING = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
EXACT = 1e-6
"""Relative deviation, of the order of float32's rounding, that still counts as none."""


def labels_of(call: LossCall) -> Tensor | None:
    """Labels or targets of a loss call, one number per sample: ``(samples,)``; None for any other call."""
    target = call.target
    if call.traced or not is_plain(target) or not target.ndim or target.numel() != len(target) or len(target) < FEWEST:
        return None
    if call.name in ("cross_entropy", "nll_loss") and target.is_floating_point():
        return None
    return target.detach().reshape(-1) if call.name in (*CLASSIFYING, *REGRESSING) else None


@torch.no_grad()
def columns(table: Tensor, labels: Tensor, classes: bool) -> dict[str, Tensor]:
    """Device numbers for ``facts`` of a ``(samples, features)`` table; empty where it does not fit or is too large."""
    samples, features = table.shape
    if len(labels) != samples or samples * features > MOST or features < 2:
        return {}
    if table.device.type == "mps":  # it has no float64
        table, labels = table.cpu(), labels.cpu()
    x, y = table.double(), labels.double()
    if not classes:
        told = (x == y[:, None]).all(0) & (y != y[0]).any()
        return {"told": told.sum(), "column": told.float().argmax(), "apart": told.any()}
    x = x - x.mean(0)
    scale = x.abs().amax(0)
    members = (y[:, None] == torch.arange(MOST_CLASSES, device=y.device)).double()
    counts = members.sum(0)
    means = (members.T @ x) / counts.clamp(min=1)[:, None]
    within = (x - members @ means).abs().amax(0)
    told = (within <= EXACT * scale) & (scale > 0)
    means = torch.where(told, means / scale.clamp(min=1e-300), 0.0)
    apart = torch.zeros(MOST_CLASSES, MOST_CLASSES, dtype=torch.bool, device=y.device)
    for i in range(MOST_CLASSES):
        apart[i] = ((means - means[i]).abs() > EXACT).any(1)
    present = counts > 0
    wanted = (present[:, None] & present).fill_diagonal_(False)
    return {"told": told.sum(), "column": told.float().argmax(), "apart": (apart | ~wanted).all(), "counts": counts}


def facts(values: Mapping[str, Tensor], samples: int, features: int) -> dict[str, Any]:
    """Fields of ``LeakedTarget`` from the numbers of ``columns``, on the host."""
    told, counts = int(values["told"]), tuple(int(c) for c in values.get("counts", torch.zeros(0)).tolist() if c > 0)
    known = "counts" not in values or sum(counts) == samples
    return {
        "column": int(values["column"]) if told and bool(values["apart"]) and known else -1,
        "telling": told,
        "counts": counts,
        "samples": samples,
        "features": features,
    }
