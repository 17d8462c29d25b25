"""What is read off a Trainer, whatever it was given."""

import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
from lightning.pytorch.utilities import CombinedLoader

from sanity_watchdog import adapter

from .runs import blobs, loader


class Plain(L.LightningModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)

    def loss(self, batch: Any) -> Any:
        return self.log("a", batch)


class Phased(Plain):
    def loss(self, batch: Any) -> Any:
        return [batch for _ in range(2) if self.trainer.current_epoch > 0]


FIRST, SECOND, THIRD = (loader(*blobs(8)) for _ in range(3))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, []),
        (FIRST, [FIRST]),
        ([FIRST, [SECOND]], [FIRST, SECOND]),
        ({"a": FIRST, "b": (SECOND, {"c": THIRD})}, [FIRST, SECOND, THIRD]),
        (CombinedLoader({"a": FIRST, "b": [SECOND]}, "min_size"), [FIRST, SECOND]),
    ],
)
def test_loaders_out_of_any_structure(given: Any, found: list[Any]) -> None:
    assert list(map(id, adapter.flat_loaders(given))) == list(map(id, found))


@pytest.mark.parametrize(("module", "asks"), [(Plain, False), (Phased, True), (L.LightningModule, False)])
def test_a_step_that_asks_for_the_epoch_has_phases(module: type[L.LightningModule], asks: bool) -> None:
    assert adapter.asks_when(module()) is asks


def test_a_package_that_is_not_there_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "pytorch-lightning":
            raise PackageNotFoundError(name)
        return "1.2"

    monkeypatch.setattr(adapter, "version", version)
    found = adapter.versions()
    assert found["lightning"] == "1.2"
    assert "pytorch-lightning" not in found


@pytest.mark.parametrize(
    ("disabled", "broken", "through_the_bar"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_lines_go_through_a_bar_that_is_live(
    capsys: pytest.CaptureFixture[str], disabled: bool, broken: bool, through_the_bar: bool
) -> None:
    said: list[tuple[str, Any]] = []

    def show(text: str, file: Any) -> None:
        if broken:
            raise OSError("no terminal")
        said.append((text, file))

    bar = SimpleNamespace(_train_progress_bar=SimpleNamespace(disable=disabled), print=show)
    adapter.echo(SimpleNamespace(progress_bar_callback=bar))("a line")
    assert bool(said) == through_the_bar
    assert not said or said == [("a line", sys.stderr)]
    assert ("a line" in capsys.readouterr().err) != through_the_bar
