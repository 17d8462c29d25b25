"""Makes pictures of layer vectors: layers × steps, worst first, small enough for a browser."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

COLUMNS = 160
"""Columns of a picture; of the steps that share one, the worst value is shown."""
LEVELS = 65_533
INFINITE, UNMEASURED = LEVELS + 1, LEVELS + 2
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Quantity:
    """How a quantity is read.

    Attributes:
        title: for people. unit: ``share``, ``log2`` (a power of two), ``bits`` or nothing.
        worst: the side on which layers are ill: ``high``, ``low``, or ``far`` from the run's median.
        scale: ends of the colours; None takes them from the values.
        about: what the picture shows, in one sentence.
    """

    title: str
    unit: str = ""
    worst: str = "high"
    scale: tuple[float, float] | None = None
    about: str = ""


QUANTITIES = {
    "underflow_share": Quantity(
        "Underflow", "share", "high", (0, 1), "Share of each gradient that float16 rounded to zero."
    ),
    "log2_overflow_headroom": Quantity(
        "Overflow headroom", "bits", "low", (0, 16), "Doublings left before the largest gradient overflows float16."
    ),
    "zero_gradient_share": Quantity(
        "Zero share",
        "share",
        "high",
        (0, 1),
        "Share of each gradient that is exactly zero; ReLU and embeddings have many.",
    ),
    "log2_update_ratio": Quantity(
        "Update ratio", "log2", "far", None, "Size of an update over the size of its weights; 2^-10 is usual."
    ),
    "log2_largest_gradient": Quantity(
        "Largest gradient", "log2", "far", None, "Largest gradient of each layer; float16 spans 2^-24 to 2^16."
    ),
}
"""What is known about the quantities that observers emit, in the order in which the tab offers them."""


@dataclass(frozen=True)
class Series:
    """The vectors of one tag: names of the layers, and per step one value for each."""

    names: Sequence[str]
    steps: Sequence[int]
    values: Sequence[npt.NDArray[Any]]


def known(name: str) -> Quantity:
    """How ``name`` is read; a guess from its name where nobody has said."""
    title = name.removeprefix("log2_").removesuffix("_share").replace("_", " ").capitalize()
    if name.endswith("_share"):
        guess = Quantity(title, "share", "high", (0, 1))
    elif name.startswith("log2_"):
        guess = Quantity(title, "log2", "far")
    else:
        guess = Quantity(title)
    return QUANTITIES.get(name, guess)


def joined(series: Iterable[Series]) -> tuple[list[str], list[int], Floats]:
    """Names, steps and values (layers, steps) of several tags of one quantity; NaN where a tag has none."""
    parts = [s for s in series if len(s.names) and len(s.steps)]
    rows = {name: i for i, name in enumerate(dict.fromkeys(n for s in parts for n in s.names))}
    columns = {step: j for j, step in enumerate(sorted({step for s in parts for step in s.steps}))}
    values = np.full((len(rows), len(columns)), np.nan, np.float32)
    for s in parts:
        at = np.array([rows[n] for n in s.names])
        for step, vector in zip(s.steps, s.values, strict=True):
            values[at, columns[step]] = vector
    return list(rows), list(columns), values


def picture(name: str, series: Iterable[Series]) -> dict[str, Any] | None:
    """One quantity as the page draws it; None where there is nothing.

    ``cells``: base64 of little-endian uint16, row by row; 0 … ``levels`` stand for ``low`` … ``high``, the two numbers
    above for infinite and for not measured. ``order``: rows, worst first.
    """
    names, steps, values = joined(series)
    if not values.size:
        return None
    what = known(name)
    finite = values[np.isfinite(values)]
    centre = float(np.median(finite)) if finite.size else 0.0
    merged = -(-len(steps) // COLUMNS)
    if merged > 1:
        edges = np.arange(0, len(steps), merged)
        values, steps = _worst(values, edges, what.worst, centre), [steps[i] for i in edges]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if what.scale is not None:
        scale = what.scale
    elif what.worst == "far":
        reach = max(high - centre, centre - low, 8.0 if what.unit == "log2" else 0.0)
        scale = (centre - reach, centre + reach)
    else:
        scale = (low, high)
    return {
        "quantity": name,
        "title": what.title,
        "about": what.about,
        "unit": what.unit,
        "worst": what.worst,
        "scale": scale,
        "low": low,
        "high": high,
        "levels": LEVELS,
        "names": names,
        "steps": steps,
        "merged": merged,
        "order": _order(values, what.worst, centre),
        "cells": base64.b64encode(_levels(values, low, high).tobytes()).decode(),
    }


def _worst(values: Floats, edges: npt.NDArray[Any], worst: str, centre: float) -> Floats:
    """The worst value between two edges each."""
    top: Floats = np.fmax.reduceat(values, edges, axis=1)
    bottom: Floats = np.fmin.reduceat(values, edges, axis=1)
    if worst == "far":
        return np.where(np.abs(top - centre) >= np.abs(bottom - centre), top, bottom)
    return bottom if worst == "low" else top


def _order(values: Floats, worst: str, centre: float) -> list[int]:
    """Rows by their worst value; equal ones and those never measured stay in the model's order."""
    bad = {"high": values, "low": -values, "far": np.abs(values - centre)}[worst]
    peak = np.nan_to_num(np.fmax.reduce(bad, axis=1), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    return [int(i) for i in np.argsort(-peak, kind="stable")]


def _levels(values: Floats, low: float, high: float) -> npt.NDArray[np.uint16]:
    with np.errstate(invalid="ignore"):
        share = (values.astype(np.float64) - low) / ((high - low) or 1.0)
        cells = np.where(np.isfinite(values), np.clip(np.nan_to_num(share), 0, 1) * LEVELS, UNMEASURED)
    cells[np.isinf(values)] = INFINITE
    return cells.round().astype("<u2")
