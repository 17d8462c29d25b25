"""What a case of the corpus is, and the registry that the families of cases fill."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import lightning as L

Run = tuple[L.LightningModule, Any, dict[str, Any]]
"""A module, its training data (a loader or a data module), and what the Trainer gets besides.

The setting ``validation`` is a loader for ``fit``.
"""


@dataclass(frozen=True)
class Case:
    """A small run that is faulty in one known way, or healthy.

    Attributes:
        name: unique; a repaired twin ends in ``-fixed``.
        family: module that it is written in.
        build: makes the run anew.
        codes: any of them names the fault; none for a healthy run.
        first: those that may be ranked first.
        also: true consequences, which are no strays.
        target: accelerator that the run is meant for, where the fault bites only there.
        raises: exception that ends the run, where the fault is not silent.
        world: number of processes.
    """

    name: str
    family: str
    build: Callable[[], Run]
    codes: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    target: str | None = None
    raises: str | None = None
    world: int = 1

    @property
    def healthy(self) -> bool:
        return not self.codes


CASES: dict[str, Case] = {}


def _register(case: Case) -> None:
    assert case.name not in CASES, case.name
    CASES[case.name] = case


def _names(build: Callable[..., Run]) -> tuple[str, str]:
    return build.__name__.replace("_", "-"), build.__module__.rpartition(".")[2]


def fault(
    *codes: str, first: tuple[str, ...] = (), also: tuple[str, ...] = (), raises: str | None = None, **kwargs: Any
) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    """Register a faulty run. A builder with a parameter ``fixed`` gives its repaired twin as well."""

    def register(build: Callable[..., Run]) -> Callable[..., Run]:
        name, family = _names(build)
        broken: Callable[[], Run] = build
        if "fixed" in inspect.signature(build).parameters:
            broken = partial(build, False)
            _register(Case(f"{name}-fixed", family, partial(build, True), **kwargs))
        _register(Case(name, family, broken, codes, first or codes, also, raises=raises, **kwargs))
        return build

    return register


def healthy(build: Callable[[], Run] | None = None, *, world: int = 1) -> Any:
    """Register a healthy run."""
    if build is None:
        return partial(healthy, world=world)
    name, family = _names(build)
    _register(Case(name, family, build, world=world))
    return build
