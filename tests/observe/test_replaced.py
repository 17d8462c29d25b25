"""Functions replaced by several threads at once: each sees its own, and the last gives back what was there."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal
from torch.nn.utils import clip_grad

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.observe.intercept import ENTRY_POINTS
from sanity_watchdog.observe.replaced import replaced
from tests.runs import Classifier, assert_awake, blobs, loader, trainer


def noting(name: str, calls: list[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        return noted

    return make


def double(x: int) -> int:
    return 2 * x


class Home:
    """Somewhere to be replaced."""

    def __init__(self) -> None:
        self.double: Callable[[int], int] = double


def test_what_is_replaced_is_called_and_given_back() -> None:
    home, calls = Home(), list[str]()
    with replaced({(home, "double"): noting("outer", calls)}):
        with replaced({(home, "double"): noting("inner", calls)}):
            assert home.double(2) == 4
        assert home.double(3) == 6
    assert calls == ["inner", "outer", "outer"]
    assert home.double is double


def test_what_somebody_else_put_there_meanwhile_stays() -> None:
    home = Home()
    with replaced({(home, "double"): noting("mine", [])}):
        ours = home.double
        home.double = other = lambda x: ours(x) + 1
    assert home.double is other
    assert home.double(2) == 5
    calls: list[str] = []
    with replaced({(home, "double"): noting("again", calls)}):
        assert home.double(2) == 5
    assert calls == ["again"]
    assert home.double is other


def test_nothing_stays_replaced_where_something_is_missing() -> None:
    home = Home()
    with pytest.raises(AttributeError), replaced(dict.fromkeys([(home, "double"), (home, "treble")], noting("x", []))):
        pass
    assert home.double is double


def test_threads_that_overlap_see_their_own_calls_only() -> None:
    home, calls = Home(), {"a": list[str](), "b": list[str]()}
    entered, left = threading.Event(), threading.Event()

    def second() -> None:
        with replaced({(home, "double"): noting("b", calls["b"])}):
            home.double(1)
            entered.set()
            left.wait(10)
            home.double(1)

    thread = threading.Thread(target=second)
    with replaced({(home, "double"): noting("a", calls["a"])}):
        thread.start()
        assert entered.wait(10)
        home.double(1)
    home.double(1)
    left.set()
    thread.join()
    assert calls == {"a": ["a"], "b": ["b", "b"]}
    assert home.double is double


def test_two_watched_fits_at_once_leave_nothing_behind() -> None:
    places = [
        *ENTRY_POINTS,
        (torch, "compile"),
        (torch.overrides, "has_torch_function"),
        (Normal, "log_prob"),
        (clip_grad, "_clip_grads_with_norm_"),
    ]
    before = [getattr(*place) for place in places]
    dogs = [SanityWatchdog(fail_on=None, every_n_steps=1) for _ in range(2)]
    barrier = threading.Barrier(2)

    class Together(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx in self.meet:
                barrier.wait(30)
            return super().training_step(batch, batch_idx)

    def fit(dog: SanityWatchdog, meet: tuple[int, ...]) -> None:
        module = Together(loss=F.cross_entropy)
        module.meet = meet  # type: ignore[assignment]
        trainer(dog, max_steps=8).fit(module, loader(*blobs()))

    threads = [threading.Thread(target=fit, args=(dog, (0, 3, 5))) for dog in dogs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [getattr(*place) for place in places] == before
    for dog in dogs:
        assert_awake(dog, 10)
        assert not dog.alerts
