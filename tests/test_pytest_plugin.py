"""Watching the training runs of other people's tests, and of any program."""

import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest
import torch
from junitparser import JUnitXml

from sanity_watchdog import SanityWatchdog, assert_trains, autoload
from sanity_watchdog.alerts import Severity

from .project import ROOT, project
from .runs import Classifier, blobs, loader

SUITE = """
import lightning as L
import pytest
import torch

from sanity_watchdog import SanityWatchdog
from tests.runs import Classifier, blobs, loader


class Zeroed(Classifier):
    def on_train_batch_end(self, *_):
        if self.global_step == 4:
            with torch.no_grad():
                self.net[0].weight.zero_()


def fit(module, *callbacks):
    torch.manual_seed(1)
    L.Trainer(
        max_steps=10, callbacks=list(callbacks), accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(module, loader(*blobs()))


def test_healthy():
    fit(Classifier())


def test_faulty():
    fit(Zeroed())


def test_raises_after_a_fault():
    fit(Zeroed())
    assert False, "the test's own failure"


@pytest.mark.sanity_watchdog(select=["WD301"], ignore={"WD301:net.0.weight": "meant"})
def test_ignored():
    fit(Zeroed())


@pytest.mark.sanity_watchdog(fail_on=None)
def test_let_go():
    fit(Zeroed())


@pytest.mark.sanity_watchdog(ignoer=["WD301"])
def test_misspelled():
    fit(Zeroed())


@pytest.mark.sanity_watchdog("WD301")
def test_unnamed():
    fit(Zeroed())


@pytest.mark.sanity_watchdog(fail_on="eror")
def test_unknown_severity():
    fit(Zeroed())


def test_several():
    fit(Classifier())
    fit(Zeroed())
    fit(Classifier())


def test_given_by_hand():
    watchdog = SanityWatchdog(fail_on=None, select=["WD301"], record="by_hand.jsonl")
    fit(Zeroed(), watchdog)
    assert [a.code for a in watchdog.alerts] == ["WD301"]


def test_fixture(sanity_watchdog):
    fit(Zeroed(), sanity_watchdog)


def test_without_training():
    pass
"""


def installed(folder: Path) -> dict[str, str]:
    """An environment in which the package is installed, as far as entry points go."""
    info = folder / "site" / "sanity_watchdog-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sanity-watchdog\nVersion: 0.1.0\n")
    lines = [
        line
        for group, points in project()["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    path = os.pathsep.join([str(folder / "site"), str(ROOT / "watchdog"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_flag_fails_the_tests_whose_runs_alert(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "test_suite.py").write_text(SUITE)
    command = ["-m", "pytest", "-n", "2", "--sanity-watchdog", "--junit-xml", "out.xml", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *command], cwd=work, env=installed(tmp_path), capture_output=True, text=True, check=False
    )
    results = {case.name: case.result for suite in JUnitXml.fromfile(str(work / "out.xml")) for case in suite}
    failed = {name for name, result in results.items() if result}
    wrong = {
        "test_misspelled": "unexpected keyword argument 'ignoer'",
        "test_unnamed": "write ignore=['WD301']",
        "test_unknown_severity": "unknown severity 'eror'",
    }
    assert failed == {"test_faulty", "test_raises_after_a_fault", "test_several", "test_fixture", *wrong}, done.stdout
    for name, words in wrong.items():
        assert words in results[name][0].text
        assert "another exception" not in results[name][0].text
    assert "something is wrong with training run 2 of 3" in results["test_several"][0].text
    for name in ("test_faulty", "test_fixture"):
        (failure,) = results[name]
        assert "WD301 zeroed-parameter" in failure.text
        assert "net.0.weight" in failure.text
    assert "the test's own failure" in done.stdout
    assert "sanity-watchdog: 8 training runs watched by --sanity-watchdog" in done.stdout
    assert {p.name for p in work.iterdir()} - {"__pycache__"} == {
        "test_suite.py",
        "out.xml",
        "by_hand.jsonl",
        "watchdog",
    }


def test_without_the_flag_nothing_is_imported(tmp_path: Path) -> None:
    (tmp_path / "test_bare.py").write_text(
        "import sys\n"
        "def test_bare():\n"
        "    names = ('torch', 'lightning', 'numpy', 'tensorboard', 'sanity_watchdog.alerts', 'sanity_watchdog.cli')\n"
        "    assert [name for name in names if name in sys.modules] == []\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA", "test_bare.py"]
    done = subprocess.run(
        [*command, "--trace-config"], cwd=tmp_path, env=installed(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "sanity_watchdog.pytest_plugin" in done.stdout or "sanity-watchdog" in done.stdout


class Zeroed(Classifier):
    """Loses a layer at the fourth step."""

    def on_train_batch_end(self, *_: object) -> None:
        if self.global_step == 4:
            with torch.no_grad():
                self.net[0].weight.zero_()


def test_assert_trains_passes_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    alerts = assert_trains(Classifier(), loader(*blobs()), steps=12)
    assert all(a.severity is Severity.INFO for a in alerts)
    assert list(tmp_path.iterdir()) == []


def test_assert_trains_fails_with_the_alert_as_its_text() -> None:
    torch.manual_seed(1)
    with pytest.raises(AssertionError, match=r"^WD301 zeroed-parameter( and \d more)?: something is wrong") as failed:
        assert_trains(Zeroed(), loader(*blobs()), steps=12)
    assert "net.0.weight" in str(failed.value)


def test_assert_trains_takes_the_callbacks_settings() -> None:
    torch.manual_seed(1)
    assert_trains(Zeroed(), loader(*blobs()), steps=12, select=["WD301"], ignore=["WD301:net.0.weight"])
    with pytest.raises(ValueError, match="unknown severity"):
        assert_trains(Classifier(), loader(*blobs()), fail_on="loud")


def test_assert_trains_does_not_accept_silence() -> None:
    with pytest.raises(AssertionError, match=r"(?s)nothing can be said.*fix: train at least one batch"):
        assert_trains(Classifier(), loader(*blobs()), steps=0)


@pytest.mark.parametrize(("value", "on"), [("1", True), ("true", True), ("0", False), ("False", False), ("", False)])
def test_the_environment_variable(monkeypatch: pytest.MonkeyPatch, value: str, on: bool) -> None:
    monkeypatch.setenv("SANITY_WATCHDOG", value)
    found = autoload.callbacks()
    assert [isinstance(c, SanityWatchdog) and c.by_environment for c in found] == [True] * on


PROGRAM = """
import os
import sys
import torch
from sanity_watchdog import SanityWatchdog
from tests.runs import Classifier, blobs, loader
if sys.argv[1] == "pytorch_lightning":
    import pytorch_lightning as L
    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(20, 10)
        def training_step(self, batch, batch_idx):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)
else:
    import lightning as L
    Module = Classifier
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
for by_hand in ([], [SanityWatchdog(fail_on=None, select=["WD301"])]):
    trainer = L.Trainer(max_steps=5, accelerator="cpu", callbacks=by_hand, **quiet)
    trainer.fit(Module(), loader(*blobs()))
    watchdogs = [c for c in trainer.callbacks if isinstance(c, SanityWatchdog)]
    print(repr([(c.by_environment, len(c.summary.judged), c.summary.batches) for c in watchdogs]))
"""


@pytest.mark.parametrize("namespace", ["lightning", "pytorch_lightning"])
def test_the_environment_variable_reaches_every_trainer_that_has_none(tmp_path: Path, namespace: str) -> None:
    environment = {**installed(tmp_path), "SANITY_WATCHDOG": "1"}
    command = [sys.executable, "-c", PROGRAM, namespace]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    alone, beside = map(literal_eval, (line for line in done.stdout.splitlines() if line.startswith("[(")))
    ((by_environment, judged, batches),) = alone
    assert (by_environment, batches) == (True, 5)
    assert judged > 5
    assert beside == [(False, 1, 5), (True, 0, 0)]
    assert done.stderr.count("watchdog: pass.") == 2
