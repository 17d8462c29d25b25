"""Disks that are full, folders that are read-only or go away: training goes on."""

import contextlib
import ctypes
import json
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from lightning.pytorch.loggers import TensorBoardLogger

from sanity_watchdog import SanityWatchdog

from .outcomes import assert_same, outcome
from .runs import Classifier, assert_awake
from .test_harmless_ends import Broken, codes_in

JUDGED = 10


def assert_silenced(capsys: pytest.CaptureFixture[str], error: str) -> None:
    told = capsys.readouterr().err
    assert told.count("JsonLinesSink cannot write") == 1, told
    assert "watchdog.jsonl" not in told.splitlines()[-1], "the closing line does not send anybody there"
    assert error in told


def test_a_record_on_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    dog = SanityWatchdog(fail_on="error", record="/dev/full")
    assert_same(outcome(dog), outcome())
    assert_awake(dog, JUDGED)
    assert_silenced(capsys, "No space left")


@contextlib.contextmanager
def small_disk(folder: Path, wanted: bool) -> Iterator[bool]:
    """A disk of four megabytes where one may be mounted; else files may not grow, which a writer notices likewise."""
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]
    mounted = wanted and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", folder], check=True)


class Filling(L.Callback):
    """Somebody else fills the disk while the run goes on."""

    def __init__(self, folder: Path, mounted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.mounted, self.monkeypatch = folder, mounted, monkeypatch

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step != 2:
            return
        if not self.mounted:
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, limit))
            full = shutil.disk_usage(self.folder)._replace(free=0)
            self.monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
            return
        with contextlib.suppress(OSError), (self.folder / "filling").open("ab", buffering=0) as file:
            for size in (4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))


class Logging(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss)
        return loss


@pytest.mark.parametrize("kind", [TensorBoardLogger, None])
@pytest.mark.parametrize("mount", [True, False])
def test_a_disk_that_fills_during_the_run(
    kind: Any, mount: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings(folder: Path, mounted: bool) -> dict[str, Any]:
        return {
            "logger": kind(folder, name="", version=0) if kind else False,
            "default_root_dir": folder,
            "callbacks": [Filling(folder, mounted, monkeypatch)],
            "max_epochs": 3,
            "max_steps": 9,
        }

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    dog, ends = SanityWatchdog(fail_on="error", every_n_steps=1), []
    for one in (None, dog):
        with small_disk(tmp_path, mount) as mounted:
            try:
                ends.append(outcome(one, module=Logging, **settings(tmp_path, mounted)))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                monkeypatch.undo()
    assert_same(*ends)
    assert not ends[0].error
    assert_awake(dog, JUDGED)


def test_a_screen_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Closed:
        def write(self, text: str) -> None:
            raise BrokenPipeError("nobody reads")

        flush = isatty = write

    plain = outcome(module=Broken)
    monkeypatch.setattr("sys.stderr", Closed())
    dog = SanityWatchdog(fail_on=None, record=tmp_path / "watchdog.jsonl")
    watched = outcome(dog, module=Broken)
    monkeypatch.undo()
    assert_same(watched, plain)
    assert_awake(dog, JUDGED)
    assert "WD102" in codes_in(map(json.loads, (tmp_path / "watchdog.jsonl").read_text().splitlines()))


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Root, too, must not write where a mode forbids it: this thread lays two capabilities down for a while."""

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    class Data(ctypes.Structure):
        _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))

    libc = ctypes.CDLL(None, use_errno=True)
    header, data = Header(0x20080522, 0), (Data * 2)()
    assert libc.capget(ctypes.byref(header), data) == 0
    before = data[0].effective
    data[0].effective &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(ctypes.byref(header), data) == 0
    try:
        yield
    finally:
        data[0].effective = before
        assert libc.capset(ctypes.byref(header), data) == 0


@pytest.mark.parametrize("named", [True, False])
def test_a_read_only_folder(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    monkeypatch.chdir(folder)
    dog = SanityWatchdog(fail_on="error", record=folder / "watchdog.jsonl" if named else None)
    with without_privileges():
        with pytest.raises(PermissionError):
            (folder / "proof").touch()
        assert_same(outcome(dog, default_root_dir=folder), outcome(default_root_dir=folder))
    assert not list(folder.iterdir())
    assert_awake(dog, JUDGED)
    assert_silenced(capsys, "Permission denied")


def test_a_file_where_the_folder_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("")
    dog = SanityWatchdog(fail_on="error", record=tmp_path / "taken" / "watchdog.jsonl")
    assert_same(outcome(dog), outcome())
    assert_awake(dog, JUDGED)
    assert_silenced(capsys, "taken")


class Deleting(L.Callback):
    """Somebody tidies up while the run goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == 2:
            shutil.rmtree(self.folder, ignore_errors=True)


def test_a_log_directory_that_is_deleted_during_the_run(tmp_path: Path) -> None:
    def settings(name: str) -> dict[str, Any]:
        folder = tmp_path / name
        return {
            "logger": TensorBoardLogger(folder, name="", version=0),
            "default_root_dir": folder,
            "callbacks": [Deleting(folder)],
            "max_epochs": 3,
            "max_steps": 9,
        }

    dog = SanityWatchdog(fail_on="error")
    plain, watched = (outcome(d, module=Logging, **settings(n)) for d, n in ((None, "plain"), (dog, "watched")))
    kinds = {error.partition(":")[0] for error in (plain.error, watched.error)}  # the names of the files differ
    assert len(kinds) == 1
    assert_same(watched._replace(error=""), plain._replace(error=""))
    assert_awake(dog, JUDGED)
