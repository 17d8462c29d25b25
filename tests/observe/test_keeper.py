"""Batches at which a run went wrong are on disk, with their places in the dataset where the sampler knows them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.evidence.readings import Vital
from sanity_watchdog.observe.keeper import HELD, SAVED, BatchKeeper, indices
from sanity_watchdog.observe.moment import Moment
from sanity_watchdog.observe.run import Run
from tests.runs import Classifier, blobs
from tests.runs import watched as watched_run

DATA = TensorDataset(torch.arange(10.0))


def run(folder: Path | str = "", loader: Any = None, batches: float = 5, **more: Any) -> Run:
    loaders = () if loader is None else (loader,)
    return Run(torch.nn.Linear(1, 1), batches=str(folder), loaders=loaders, batches_per_epoch=batches, **more)


def watched(keeper: BatchKeeper, run: Run, losses: Iterable[float], late: int = 0) -> list[Vital]:
    """Drive the keeper; numbers arrive ``late`` batches after they were asked for."""
    keeper.start(run, Moment(run))
    waiting: list[Moment] = []
    said: list[Vital] = []

    def deliver(at: Moment) -> None:
        for reader, values in zip(at.readers, at.packet.read(), strict=True):
            said.extend(reader(values) or ())

    for number, loss in enumerate(losses):
        at = Moment(run, step=number, batch=number)
        keeper.batch(at, {"x": torch.full((2,), float(number))})
        keeper.batch_end(at, {"loss": torch.tensor(loss)})
        waiting.append(at)
        if len(waiting) > late:
            deliver(waiting.pop(0))
    for at in waiting:
        deliver(at)
    return said


def saved(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.name: torch.load(path) for path in sorted(folder.glob("*.pt"))}


def test_nothing_is_held_or_asked_unless_it_is_wanted(tmp_path: Path) -> None:
    keeper = BatchKeeper()
    at = Moment(run())
    keeper.start(run(), at)
    keeper.batch(at, torch.zeros(2))
    keeper.batch_end(at, {"loss": torch.tensor(float("nan"))})
    assert at.readers == []
    assert keeper._held == {}


@pytest.mark.parametrize("late", [0, 2])
def test_the_batch_of_a_nan_is_saved(tmp_path: Path, late: int) -> None:
    loader = DataLoader(DATA, 2)
    (vital,) = watched(BatchKeeper(), run(tmp_path / "batches", loader), [2.0] * 7 + [float("nan")] + [2.0] * 3, late)
    assert vital.text == f"1 of the batches that went wrong saved in {tmp_path / 'batches'}"
    ((name, found),) = saved(tmp_path / "batches").items()
    assert name == "step-7-non-finite-loss.pt"
    assert torch.equal(found["batch"]["x"], torch.full((2,), 7.0))
    assert (found["step"], found["batch_number"], found["indices"], found["reason"]) == (
        7,
        7,
        [4, 5],
        "non-finite-loss",
    )
    assert found["loss"] != found["loss"]


@pytest.mark.parametrize(
    ("losses", "names"),
    [
        ([1.0] * 20 + [50.0], ["step-20-loss-spike.pt"]),
        ([1.0] * 20 + [9.0], []),
        ([1.0] * 10 + [50.0], []),
        ([20.0] + [1.0] * 30 + [50.0], []),
        ([-1.0] + [1.0] * 30 + [50.0], []),
    ],
    ids=["spike", "small", "early", "as high before", "negative"],
)
def test_the_batch_of_a_spike_is_saved(tmp_path: Path, losses: list[float], names: list[str]) -> None:
    watched(BatchKeeper(), run(tmp_path), losses)
    assert list(saved(tmp_path)) == names


def test_a_run_that_stays_broken_fills_no_disk_and_holds_no_memory(tmp_path: Path) -> None:
    keeper = BatchKeeper()
    watched(keeper, run(tmp_path, rank=1), [float("nan")] * 50)
    assert len(saved(tmp_path)) == SAVED
    assert all(name.endswith(".rank1.pt") for name in saved(tmp_path))
    assert keeper._held == {}
    keeper = BatchKeeper()
    watched(keeper, run(tmp_path), [1.0] * 50, late=40)
    assert len(keeper._held) <= HELD


def test_a_batch_that_cannot_be_saved_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = watched(BatchKeeper(), run(tmp_path / "file" / "below"), [float("nan")] * 3)
    assert len(said) == 1
    assert said[0].text.startswith("the batch of step 0 (non-finite-loss) could not be saved: ")


@pytest.mark.parametrize("output", [None, torch.tensor([1.0, 2.0]), {"x": 1}, "text"], ids=str)
def test_a_step_without_a_loss_keeps_nothing(tmp_path: Path, output: Any) -> None:
    keeper = BatchKeeper()
    at = Moment(run(tmp_path))
    keeper.start(run(tmp_path), at)
    keeper.batch(at, Tensor([1.0]))
    keeper.batch_end(at, output)
    assert (keeper._held, at.readers) == ({}, [])


def test_indices_where_the_sampler_knows_them() -> None:
    distributed = DistributedSampler(DATA, num_replicas=2, rank=1, shuffle=False)
    rows: list[tuple[Any, float, int, list[int] | None]] = [
        (DataLoader(DATA, 2), 5, 7, [4, 5]),
        (DataLoader(DATA, 4), 3, 2, [8, 9]),
        (DataLoader(DATA, 2, sampler=distributed), 3, 1, [5, 7]),
        (DataLoader(DATA, batch_sampler=[[3, 1], [2]]), 2, 3, [2]),
        (DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 3, True)), 3, 1, [3, 4, 5]),
        (DataLoader(DATA, 2, sampler=[9, 8, 7, 6]), 2, 1, [7, 6]),
        (DataLoader(DATA, 2, sampler=RandomSampler(DATA)), 5, 1, None),
        (DataLoader(DATA, batch_size=None), 10, 1, None),
        (DataLoader(DATA, 2), float("inf"), 1, None),
        ([1, 2, 3], 3, 1, None),
    ]
    for loader, per_epoch, number, expected in rows:
        assert indices(run("", loader, per_epoch), number) == expected
    assert indices(run(), 3) is None


def test_asking_a_sampler_leaves_the_generators_alone() -> None:
    sampler = DistributedSampler(DATA, num_replicas=2, rank=0, shuffle=True)
    described = run("", DataLoader(DATA, 2, sampler=sampler), 3)
    before = torch.get_rng_state()
    assert indices(described, 0) is not None
    assert torch.equal(before, torch.get_rng_state())


class OneBad(Classifier):
    """The loss of the 23rd batch, in no sample, is NaN."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * float("nan") if batch_idx == 23 else loss


def test_a_run_saves_its_bad_batch_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = blobs()
    data = DataLoader(TensorDataset(x, y), 8)
    watchdog = SanityWatchdog(fail_on=None, save_batches=True, record=tmp_path / "watchdog.jsonl")
    watched_run(OneBad(), data, watchdog=watchdog, max_steps=32)
    found = saved(tmp_path / "watchdog_batches")
    bad = found["step-23-non-finite-loss.pt"]
    assert torch.equal(bad["batch"][0], x[23 * 8 : 24 * 8])
    assert bad["indices"] == list(range(23 * 8, 24 * 8))
    assert "of the batches that went wrong saved in" in capsys.readouterr().err
    assert "WD142" in [a.code for a in watchdog.alerts]
    assert not watchdog.summary.broken


def test_a_run_saves_nothing_unasked(tmp_path: Path) -> None:
    watchdog = SanityWatchdog(fail_on=None, record=tmp_path / "watchdog.jsonl")
    watched_run(OneBad(), DataLoader(TensorDataset(*blobs()), 8), watchdog=watchdog, max_steps=32)
    assert [p.name for p in tmp_path.iterdir()] == ["watchdog.jsonl"]
