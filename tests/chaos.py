"""Every function of the watchdog's that runs in a fit raises, one after the other: ``python -m tests.chaos``.

A trace function that raises makes the call that it is told of raise: no part has to be named, so new ones are covered.
"""

import argparse
import logging
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

import sanity_watchdog
from sanity_watchdog import SanityWatchdog

from .outcomes import Outcome, outcome, same
from .runs import Classifier, fp16, step_by_hand

OWN = os.path.dirname(sanity_watchdog.__file__) + os.sep
USERS = frozenset({"training_step", "validation_step", "backward"})
GUARDS = frozenset(
    {
        "callbacks",
        "harmless.<locals>.guarded",
        "SanityWatchdog.state_dict",
        "Inside.do",
        "Inside.hook.<locals>.<lambda>",
        "_Watched.__call__",
        "Watch.around_step",
        "Watch.around_backward",
        "Watch.output",
        "Watch._scoped",
        "Watch._scopes",
        "Watch._call",
        "Delivery.guard",
        "StepHooks._about_to_step",
        "StepHooks._stepped",
        "Row._resting.<locals>.rests",
        "Row.stepping",
        "Row.ended",
        "Interception.record",
        "entry_points.<locals>.wrapped.<locals>.entry",
        "_instead",
        "_replaced.<locals>.noting.<locals>.noted",
        "compiled_code_unwatched",
        "untraced",
        "trace_with",
        "compiled_code_unwatched.<locals>.compile",
        "unseen",
        "_aside",
        "Onlooker.__torch_function__",
        "Onlooker.call",
        "Onlooker.__torch_function__.<locals>.<genexpr>",
        "FollowingMode.saw",
        "Following.saw",
        "_DropoutMode.saw",
        "_NormMode.saw",
        "_StatesMode.saw",
        "_unseen.<locals>.forward",
        "_Place.__init__.<locals>.entry",
        "Recorder.__torch_dispatch__",
        "Stack.leaving.<locals>.made.<locals>.leave",
        "Stack._making_way",
    }
)
"""What guards the rest: a few lines each that call on and catch. Nothing guards them."""
SETUP = "SanityWatchdog.setup"
"""May raise: contradicting settings are the user's error."""


class Place(NamedTuple):
    """A function of ours."""

    file: str
    line: int
    name: str

    @classmethod
    def of(cls, frame: FrameType) -> "Place":
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # Python 3.11
        return cls(code.co_filename.removeprefix(OWN), code.co_firstlineno, name)


class Usual(Classifier):
    """A bit of everything that observers look at."""

    def __init__(self, manual: bool = False) -> None:
        layers = [nn.Linear(20, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 10)]
        super().__init__(nn.Sequential(*layers))
        self.automatic_optimization = not manual

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss if self.automatic_optimization else step_by_hand(self, loss)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val", self.loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 3)]


KINDS: dict[str, tuple[Callable[[], Classifier], Callable[[], dict[str, Any]]]] = {
    "automatic": (Usual, dict),
    "manual": (lambda: Usual(manual=True), dict),
    "fp16": (Usual, lambda: {"plugins": [fp16()]}),
}


def traced(kind: str, trace: Any, dog: SanityWatchdog | None) -> Outcome:
    module, settings = KINDS[kind]
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return outcome(dog, module, max_epochs=3, num_sanity_val_steps=1, **settings())
    finally:
        sys.settrace(before)


def watchdog() -> SanityWatchdog:
    return SanityWatchdog(
        fail_on="error", every_n_steps=1, targets=("cuda",), record=tempfile.mkdtemp(), save_batches=True
    )


def calls(kind: str) -> tuple[Outcome, Counter[Place], set[Place]]:
    """The undisturbed outcome; how often each function of ours is called; which are called within the user's code."""
    found: Counter[Place] = Counter()
    within: set[Place] = set()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_filename.startswith(OWN):
            place = Place.of(frame)
            found[place] += 1
            if place not in within and _is_within(frame):
                within.add(place)

    dog = watchdog()
    undisturbed = traced(kind, count, dog)
    assert same(undisturbed, traced(kind, None, None))
    assert not dog.summary.broken
    free = {p for p in found if p.name in GUARDS or p.name.startswith(SETUP)}
    return undisturbed, Counter({p: n for p, n in found.items() if p not in free}), within - free


def _is_within(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in USERS and not frame.f_code.co_filename.startswith(OWN):
            return True
        frame = frame.f_back
    return False


def harmed(kind: str, undisturbed: Outcome, places: Iterable[tuple[Place, int]]) -> list[str]:
    """Calls, by function and number, whose raising the user notices."""
    found = []
    for place, number in places:
        seen = 0

        def boom(frame: FrameType, event: str, argument: Any, place: Place = place, number: int = number) -> None:
            nonlocal seen
            if frame.f_code.co_firstlineno == place.line and Place.of(frame) == place:
                seen += 1
                if seen == number:
                    raise RuntimeError("boom")

        end = traced(kind, boom, watchdog())
        if not same(end, undisturbed):
            found.append(f"{place.name} ({place.file}:{place.line}), call {number}: {end.error or 'other weights'}")
    return found


def main() -> int:
    """Prints what is noticed; 1 where anything is."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=main.__doc__)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    out, sys.stderr = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
    noticed = 0
    for kind in options.kind or KINDS:
        undisturbed, found, _ = calls(kind)
        places = [(place, number) for place, count in sorted(found.items()) for number in sorted({1, count})]
        worst = harmed(kind, undisturbed, places)
        noticed += len(worst)
        print(
            f"{kind}: {len(places)} calls of {len(found)} functions, {len(worst)} noticed", *worst, sep="\n", file=out
        )
    return int(noticed > 0)


if __name__ == "__main__":
    sys.exit(main())
