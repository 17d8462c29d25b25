"""One case under a watchdog, and what its alerts are worth."""

import atexit
import functools
import tempfile
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L

from sanity_watchdog.alerts import Severity
from sanity_watchdog.records import alert_to_dict
from tests.ranks.processes import Ranks
from tests.runs import trainer

from .adapter import factory
from .case import CASES, Case


@dataclass(frozen=True)
class Result:
    """What one case showed under one seed.

    Attributes:
        alarms: codes at WARNING or above, ranked.
        messages: the same with their texts.
        broken: a part of the watchdog failed, or nothing was judged.
        error: exception that ended the run, if any.
    """

    name: str
    seed: int
    alarms: tuple[str, ...] = ()
    messages: tuple[str, ...] = field(default=(), repr=False)
    broken: bool = False
    error: str = ""
    seconds: float = 0.0

    @property
    def case(self) -> Case:
        return CASES[self.name]

    @property
    def named(self) -> bool:
        return bool(set(self.alarms) & set(self.case.codes))

    @property
    def first_named(self) -> bool:
        return bool(self.alarms) and self.alarms[0] in self.case.first

    @property
    def strays(self) -> tuple[str, ...]:
        """Alarms that the case does not account for; on a healthy run each is a false alarm."""
        return tuple(a for a in self.alarms if a not in {*self.case.codes, *self.case.also})

    @property
    def ended_as_declared(self) -> bool:
        return self.error == (self.case.raises or "")


DEFAULTS: dict[str, Any] = {"max_steps": 40, "max_epochs": 1000, "callbacks": ()}
"""What a case's Trainer gets where the case does not say otherwise."""


def _fit(case: Case, seed: int) -> tuple[Any, str]:
    L.seed_everything(seed, verbose=False)
    module, data, own = case.build()
    dog = factory(case.target)
    settings = {**DEFAULTS, **own}
    validation, error = settings.pop("validation", None), ""
    train = trainer(dog, *settings.pop("callbacks"), **settings).fit
    loaders = {"datamodule": data} if isinstance(data, L.LightningDataModule) else {"train_dataloaders": data}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            train(module, val_dataloaders=validation, **loaders)
    except Exception as e:  # noqa: BLE001
        error = type(e).__name__
    return dog, error


def _seen(dog: Any) -> dict[str, Any]:
    return {
        "alerts": [alert_to_dict(a) for a in dog.alerts if a.severity >= Severity.WARNING],
        "broken": bool(dog.summary.broken) or any(a.code in ("WD001", "WD002") for a in dog.alerts),
    }


def run(case: Case, seed: int = 0) -> Result:
    """Train once. Several processes run outside this one."""
    start = time.perf_counter()
    if case.world > 1:
        seen, error = _run_processes(case, seed)
    else:
        dog, error = _fit(case, seed)
        seen = _seen(dog)
    alerts = seen["alerts"]
    return Result(
        case.name,
        seed,
        tuple(a["code"] for a in alerts),
        tuple(f"{a['code']} {', '.join(a['subjects'][:2])}: {a['message']}" for a in alerts),
        seen["broken"],
        error,
        time.perf_counter() - start,
    )


@functools.cache
def _ranks() -> Ranks:
    """One server for all cases of several processes."""
    server = Ranks()
    atexit.register(server.close)
    return server


def _run_processes(case: Case, seed: int) -> tuple[dict[str, Any], str]:
    with tempfile.TemporaryDirectory() as folder:
        found = _ranks().run(case.name, Path(folder), case.world, seed=seed)
    if len(found.seen) < case.world:
        return {"alerts": [], "broken": True}, "ProcessLost"
    broken = any(seen["broken"] for seen in found.seen.values()) or bool(found.alerts("WD001", "WD002"))
    errors = (seen["error"].partition(":")[0] for seen in found.seen.values())
    return {"alerts": found.alerts(), "broken": broken}, next((e for e in errors if e), "")


@dataclass(frozen=True)
class Score:
    """Counts over results."""

    faulty: int
    named: int
    first_named: int
    strays: int
    healthy: int
    false_alarms: int
    broken: int

    @classmethod
    def of(cls, results: Iterable[Result]) -> "Score":
        results = list(results)
        ill = [r for r in results if not r.case.healthy]
        well = [r for r in results if r.case.healthy]
        return cls(
            faulty=len(ill),
            named=sum(r.named for r in ill),
            first_named=sum(r.first_named for r in ill),
            strays=sum(len(r.strays) for r in ill),
            healthy=len(well),
            false_alarms=sum(bool(r.alarms) for r in well),
            broken=sum(r.broken for r in results),
        )

    def __str__(self) -> str:
        per_run = self.strays / max(1, self.faulty)
        return (
            f"named {self.named}/{self.faulty}, first {self.first_named}/{self.faulty}, strays per faulty run "
            f"{per_run:.2f}, false alarms {self.false_alarms}/{self.healthy}, broken {self.broken}"
        )
