"""Does a column of a table equal the label that is to be predicted?"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .calls import LossCall

MOST_CLASSES = 64
"""Classes whose indicator columns are searched for."""
MOST = 1 << 20
"""Elements of the table: larger ones are not looked at."""
FEWEST = 16
"""Samples below which equality may be chance."""


def labels_of(call: LossCall) -> Tensor | None:
    """Class labels of a loss call, one per sample: ``(samples,)``; None for any other call."""
    target = call.target
    if not isinstance(target, Tensor) or call.traced or target.numel() < FEWEST:
        return None
    if call.name in ("cross_entropy", "nll_loss") and target.ndim == 1 and not target.is_floating_point():
        return target
    if call.name.startswith("binary_cross_entropy") and target.numel() == len(target):
        return target.reshape(-1)
    return None


@torch.no_grad()
def columns(table: Tensor, labels: Any) -> dict[str, Tensor]:
    """Device numbers for ``facts`` of a ``(samples, features)`` table; empty where it does not fit or is too large."""
    samples, features = table.shape
    if len(labels) != samples or samples * features > MOST:
        return {}
    x, y = table.float(), labels.detach().float()
    equal = (x == y[:, None]).all(0)
    classes = torch.arange(MOST_CLASSES, device=y.device, dtype=y.dtype)
    members = (y[:, None] == classes).float()
    counts = members.sum(0)
    wrong = (x != 0).float().T @ (1 - members) + (x != 1).float().T @ members
    indicated = (wrong == 0).any(0)
    present = counts > 0
    return {
        "equal": equal.any(),
        "column": equal.float().argmax(),
        "indicated": (indicated | ~present).all(),
        "indicator": (wrong == 0).float().amax(1).argmax(),
        "inside": counts.sum(),
        "counts": counts,
    }


def facts(values: Mapping[str, Tensor], samples: int, features: int) -> dict[str, Any]:
    """Fields of ``LeakedTarget`` from the numbers of ``columns``, on the host."""
    equal = bool(values["equal"])
    inside = float(values["inside"]) == samples
    one_hot = bool(values["indicated"]) and inside
    return {
        "column": int(values["column"] if equal else values["indicator"]) if equal or one_hot else -1,
        "one_hot": one_hot and not equal,
        "counts": tuple(int(c) for c in values["counts"].tolist() if c > 0) if inside else (),
        "samples": samples,
        "features": features,
    }
