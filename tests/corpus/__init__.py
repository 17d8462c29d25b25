"""Small training runs, faulty in known ways or healthy, on which detection is measured."""

from . import (
    data,
    devices,
    gradients,
    healthy_networks,
    healthy_objectives,
    healthy_practice,
    losses,
    modes,
    numerics,
    optimizers,
    parameters,
    ranks,
)
from .case import CASES, Case

__all__ = [
    "CASES",
    "Case",
    "data",
    "devices",
    "gradients",
    "healthy_networks",
    "healthy_objectives",
    "healthy_practice",
    "losses",
    "modes",
    "numerics",
    "optimizers",
    "parameters",
    "ranks",
]
