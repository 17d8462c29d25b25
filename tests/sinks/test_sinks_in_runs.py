"""Where a real Trainer's run is written, and what happens where it cannot be."""

import csv
import re
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.reports.load import load
from sanity_watchdog.sinks import tensorboard
from tests.runs import Classifier, blobs, loader


class Logged(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss)
        return loss


class Zeroed(Logged):
    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step == 4:
            with torch.no_grad():
                self.net[0].weight.zero_()


class Raises(Zeroed):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 7:
            raise RuntimeError("the user's own")
        return super().training_step(batch, batch_idx)


def fit(module: L.LightningModule, folder: Path, **trainer: Any) -> SanityWatchdog:
    watchdog = SanityWatchdog(fail_on=None, record=trainer.pop("record", None))
    torch.manual_seed(1)
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    quiet |= {"accelerator": "cpu", "max_steps": 10, "log_every_n_steps": 1, "default_root_dir": str(folder)}
    L.Trainer(**{**quiet, **trainer}, callbacks=[watchdog]).fit(module, loader(*blobs()))
    return watchdog


def events(folder: Path) -> dict[str, list[int]]:
    """Steps by tag of the one event file in ``folder``."""
    (file,) = folder.glob("events.out.tfevents.*")
    found: dict[str, list[int]] = {}
    for event in LegacyEventFileLoader(str(file)).Load():
        for value in event.summary.value:
            found.setdefault(value.tag, []).append(event.step)
    return found


def codes(watchdog: SanityWatchdog) -> list[str]:
    return [alert.code for alert in watchdog.alerts]


def test_the_users_tensorboard_file_is_used_and_nothing_beside_it(tmp_path: Path) -> None:
    loggers = [CSVLogger(str(tmp_path / "csv")), TensorBoardLogger(str(tmp_path / "tb"))]
    watchdog = fit(Zeroed(), tmp_path, logger=loggers)
    assert "WD301" in codes(watchdog)
    found = events(tmp_path / "tb" / "lightning_logs" / "version_0")
    assert found["loss"] == list(range(10))
    assert {"watchdog/0_summary", "watchdog/first_loss", "watchdog/ln_k", "watchdog/errors"} <= found.keys()
    assert any(tag.endswith("/WD301") for tag in found)
    assert len(list(tmp_path.rglob("events.out.tfevents.*"))) == 1
    with (tmp_path / "csv" / "lightning_logs" / "version_0" / "metrics.csv").open() as file:
        assert set(next(csv.reader(file))) == {"epoch", "loss", "step"}


def test_without_a_tensorboard_logger_it_has_a_folder_of_its_own(tmp_path: Path) -> None:
    watchdog = fit(Zeroed(), tmp_path)
    assert "watchdog/0_summary" in events(tmp_path / "watchdog")
    (run,) = load([tmp_path]).runs
    assert run.summary == watchdog.summary
    assert {p.name for p in tmp_path.iterdir()} == {"watchdog", "watchdog.jsonl"}


def test_a_run_that_raises_is_written_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the user's own"):
        fit(Raises(), tmp_path, logger=TensorBoardLogger(str(tmp_path)))
    found = events(tmp_path / "lightning_logs" / "version_0")
    assert any(tag.endswith("/WD301") for tag in found)
    (run,) = load([tmp_path]).runs
    assert run.finished
    assert "WD301" in [a.code for a in run.summary.alerts]


def test_each_fit_of_a_process_has_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(Logged(), tmp_path)
    fit(Logged(), tmp_path)
    found = re.findall(r"watchdog: pass\.(?: fit (\d+) ·)? first loss", capsys.readouterr().err)
    first, second = (int(number or 1) for number in found)
    assert second == first + 1


def test_fast_dev_run_writes_only_the_record_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fit(Logged(), tmp_path / "root", fast_dev_run=True, logger=True)
    assert list(tmp_path.iterdir()) == []
    assert "watchdog: pass." in capsys.readouterr().err
    fit(Logged(), tmp_path / "root", fast_dev_run=True, logger=True, record=tmp_path / "records" / "watchdog.jsonl")
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")] == ["records/watchdog.jsonl"]


@pytest.mark.parametrize("record", ["file/below/watchdog.jsonl", "/dev/full"])
def test_what_cannot_be_written_is_said_once_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "watchdog").write_text("a file where the folder should be")
    watchdog = fit(Zeroed(), tmp_path, record=tmp_path / record)
    said = capsys.readouterr().err
    for sink in ("JsonLinesSink", "TensorBoardSink"):
        assert said.count(f"{sink} cannot write") == 1
    assert "WD301" in codes(watchdog)
    assert watchdog.summary.broken == {}
    assert "WD301" in said


def test_a_sink_that_breaks_later_does_not_silence_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a sudden end")

    monkeypatch.setattr(tensorboard.TensorBoardSink, "close", broken)
    fit(Zeroed(), tmp_path)
    assert capsys.readouterr().err.count("a sudden end") == 1
    (run,) = load([tmp_path]).runs
    assert run.finished
