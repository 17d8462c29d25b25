"""Every script of the gallery, as users run it: faults name themselves first, fixes are quiet."""

import importlib
import json
import os
import runpy
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks import CHECKS
from sanity_watchdog.reports.load import load

from .gallery import EXAMPLES, Script, scripts
from .runs import assert_awake, codes

INTRODUCTION = "train_digits"
SEVERAL = "ddp"
SCRIPTS = {s.path.stem: s for s in scripts()}
ALONE = [s for name, s in SCRIPTS.items() if name not in (INTRODUCTION, SEVERAL)]
CASES = [pytest.param(s, fault, id=f"{s.path.stem}-{fault}") for s in ALONE for fault in s.faults]
UNJUDGED = {"lost-updates"}
"""Fixes after which there is nothing left to judge: float32 weights lose no updates."""
UNSHOWN = {"WD001", "WD002", "WD401", "WD407", "WD410", "WD411", "WD510", "WD601", "WD603", "WD604"}
"""Codes without a script: about the watchdog itself, mere notes, or faults that need other devices or minutes."""


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The examples' folder is where Python looks first, as when a script is run; nothing stays behind."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    generator = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using a target size")  # what column-meets-row is about
        yield
    for name in set(sys.modules) - known:
        if str(EXAMPLES) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    torch.set_rng_state(generator)


def run(script: Script, *arguments: str) -> SanityWatchdog:
    dog = importlib.import_module(script.path.stem).main([*arguments, "--logs", "logs"])
    assert_awake(dog, 0)
    return dog


@pytest.mark.parametrize(("script", "fault"), CASES)
def test_a_fault_names_itself_first(script: Script, fault: str) -> None:
    code, _ = script.faults[fault]
    dog = run(script, "--fault", fault)
    assert codes(dog)[:1] == [code]
    assert list(Path("logs").rglob("watchdog.jsonl"))


@pytest.mark.parametrize(("script", "fault"), CASES)
def test_the_fix_is_quiet(script: Script, fault: str) -> None:
    code, _ = script.faults[fault]
    dog = run(script, "--fixed", fault)
    assert codes(dog) == []
    assert dog.verdict == "pass"
    assert code in dog.summary.judged or fault in UNJUDGED
    assert len(dog.summary.judged) > 30


@pytest.mark.parametrize("script", ALONE, ids=lambda s: s.path.stem)
def test_a_healthy_run_is_quiet(script: Script) -> None:
    dog = run(script)
    assert codes(dog) == []
    assert dog.verdict == "pass"


@pytest.mark.parametrize("fault", SCRIPTS[INTRODUCTION].faults)
def test_the_introduction(fault: str) -> None:
    script = SCRIPTS[INTRODUCTION]
    assert codes(run(script, "--fault", fault, "--epochs", "1"))[:1] == [script.faults[fault][0]]


def test_the_introduction_in_health() -> None:
    dog = run(SCRIPTS[INTRODUCTION])
    assert codes(dog) == []
    assert dog.verdict == "pass"


def launch(*command: str) -> None:
    """Run a script in processes of its own."""
    paths = os.pathsep.join([str(EXAMPLES.parent / "watchdog"), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=240, env=environ)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flag", ["--fault", "--fixed"])
def test_two_processes(flag: str, tmp_path: Path) -> None:
    ((fault, (code, _)),) = SCRIPTS[SEVERAL].faults.items()
    launch(str(SCRIPTS[SEVERAL].path), flag, fault, "--logs", str(tmp_path))
    (record,) = tmp_path.rglob("watchdog.jsonl")
    (watched,) = load([record]).runs
    found = [a.code for a in watched.failing(Severity.WARNING)]
    assert found[:1] == ([code] if flag == "--fault" else [])
    assert watched.finished
    assert code in watched.summary.judged


@pytest.mark.parametrize(("rate", "found"), [("0.001", []), ("1.0", ["WD317"])])
def test_a_command_line_from_a_configuration(rate: str, found: list[str]) -> None:
    train = runpy.run_path(str(EXAMPLES / "cli" / "train.py"), run_name="example")
    config = str(EXAMPLES / "cli" / "config.yaml")
    cli = train["main"](["fit", "--config", config, "--model.rate", rate])
    (dog,) = (c for c in cli.trainer.callbacks if isinstance(c, SanityWatchdog))
    assert codes(dog) == found
    assert_awake(dog)


def test_the_smoke_test() -> None:
    launch("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(EXAMPLES / "test_smoke.py"))


def test_the_notebook() -> None:
    notebook = json.loads((EXAMPLES / "watchdog.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    space: dict[str, Any] = {}
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("markdown", "code")
        assert cell["id"]
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
    assert space["healthy"].verdict == "pass"
    assert codes(space["broken"]) == ["WD102"]
    assert codes(space["raw"])[0] == "WD123"


def test_every_check_has_a_script_or_a_reason() -> None:
    shown = {code for s in SCRIPTS.values() for code, _ in s.faults.values()}
    assert shown.isdisjoint(UNSHOWN)
    assert shown | UNSHOWN == {c.code for c in CHECKS}
