"""A watched run is the unwatched run, bit for bit, and the watchdog was awake while it was watched."""

import shutil
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.observe.row import Row

from .identity_runs import CONFIGURATIONS, Augmented, Net, digest, run
from .runs import assert_awake

TARGETS = ("mps", "tpu", "cuda", "xpu")
JUDGED = 25


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_watched_run_is_the_same_run(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"  # checkpoints hold paths: both runs have the same
    plain = run(name, None, folder)
    shutil.rmtree(folder, ignore_errors=True)
    watchdog = SanityWatchdog(fail_on=None, every_n_steps=1, targets=TARGETS, record=tmp_path / "watchdog.jsonl")
    watched = run(name, watchdog, folder)
    assert watched == plain
    assert_awake(watchdog, JUDGED)


AT_REST = (
    "fp32",
    "bf16-true",
    "accumulate",
    "clip",
    "stream",
    "tensorboard",
    "ema",
    "hooks",
    "tensor-hook",
    "in-place",
    "anomaly",
    "resume",
    "two-fits",
)
"""Settings in which a run that has settled rests between samples."""


@pytest.mark.parametrize("name", AT_REST)
def test_a_run_that_is_watched_at_rest_is_the_same_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, ended = [], Row.ended

    def counted(self: Row, *args: Any) -> None:
        ended(self, *args)
        noted.append(len(self.losses))

    monkeypatch.setattr(Row, "ended", counted)
    folder = tmp_path / "run"
    plain = run(name, None, folder, steps=90)
    shutil.rmtree(folder, ignore_errors=True)
    watchdog = SanityWatchdog(fail_on=None, record=tmp_path / "watchdog.jsonl")
    watched = run(name, watchdog, folder, steps=90)
    assert watched == plain
    assert_awake(watchdog, JUDGED)
    assert len(noted) >= 10


INSIDE_THE_GRAPH = ("compiled-module",)
"""Where the loss cannot be seen, so that another fault is planted."""


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_planted_fault_alerts_in_the_same_setting(name: str, tmp_path: Path) -> None:
    watchdog = SanityWatchdog(fail_on=None, record=tmp_path / "watchdog.jsonl")
    fault, code = ("outside", "WD311") if name in INSIDE_THE_GRAPH else ("softmax", "WD102")
    run(name, watchdog, tmp_path / "run", fault)
    assert code in {a.code for a in watchdog.alerts}
    assert watchdog.verdict == "fail"


@pytest.mark.parametrize("action", ["validate", "test", "predict"])
def test_other_loops_are_left_alone(action: str, tmp_path: Path) -> None:
    class Evaluated(Net):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.validation_step(batch, batch_idx)

        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            return self(batch[0])

    def outcome(dogs: list[SanityWatchdog]) -> str:
        L.seed_everything(7, verbose=False)
        net = Evaluated()
        trainer = L.Trainer(
            accelerator="cpu",
            devices=1,
            callbacks=dogs,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        result = getattr(trainer, action)(
            net, DataLoader(Augmented(32), 16), **({} if action == "predict" else {"verbose": False})
        )
        return digest([result, dict(net.state_dict()), torch.get_rng_state()])

    dog = SanityWatchdog(fail_on="info")
    assert outcome([dog]) == outcome([])
    assert dog.verdict == "incomplete"
    assert not dog.alerts
