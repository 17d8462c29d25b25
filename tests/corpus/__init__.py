"""Small training runs, faulty in known ways or healthy, on which detection is measured."""

from . import (
    data,
    devices,
    gradients,
    healthy_networks,
    healthy_objectives,
    healthy_practice,
    loops,
    losses,
    modes,
    numerics,
    optimizers,
    parameters,
    ranks,
    sequences,
    targets,
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
    "loops",
    "losses",
    "modes",
    "numerics",
    "optimizers",
    "parameters",
    "ranks",
    "sequences",
    "targets",
]
