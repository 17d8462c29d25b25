"""How a run ends for its user: what is compared where nothing of ours may be noticed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import lightning as L
import torch
from torch import Tensor

from sanity_watchdog import SanityWatchdog

from .runs import Classifier, blobs, loader, trainer


class Outcome(NamedTuple):
    """The exception, if any; the final weights and buffers; the generator."""

    error: str
    state: list[Tensor]
    generator: Tensor


def outcome(
    dog: SanityWatchdog | None = None,
    module: Callable[[], L.LightningModule] = Classifier,
    data: Callable[[], Any] = lambda: loader(*blobs(96)),
    **settings: Any,
) -> Outcome:
    """How a seeded fit ends."""
    L.seed_everything(3, verbose=False)
    net, given, error = module(), data(), ""
    more = settings.pop("callbacks", [])
    try:
        trainer(*([dog] if dog else []), *more, **{"max_steps": 5, **settings}).fit(net, given, given)
    except BaseException as e:  # noqa: BLE001
        error = type(e).__name__ + ": " + BaseException.__str__(e)
    tensors = [*net.parameters(), *net.buffers()]
    return Outcome(error, [t.detach().clone() for t in tensors], torch.get_rng_state())


def assert_same(one: Outcome, other: Outcome) -> None:
    assert one.error == other.error
    assert same(one, other)


def same(one: Outcome, other: Outcome) -> bool:
    return (
        one.error == other.error
        and len(one.state) == len(other.state)
        and all(torch.equal(a, b) for a, b in zip(one.state, other.state, strict=True))
        and torch.equal(one.generator, other.generator)
    )
