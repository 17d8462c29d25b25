"""The command line: what it prints, how it exits, what it does not import."""

import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from sanity_watchdog import cli
from sanity_watchdog.checks import CHECKS
from sanity_watchdog.reports import pages
from sanity_watchdog.summary import Batch, Summary

from .reports.samples import ERROR, HOSTILE, NOTE, write

WITHOUT_TORCH = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        absent = ("torch", "lightning", "pytorch_lightning", "torchmetrics", "numpy", "tensorboard", "rich")
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from sanity_watchdog.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(*arguments: str | Path) -> int:
    return cli.main([str(a) for a in arguments])


@pytest.mark.parametrize(
    ("alerts", "fail_on", "code"),
    [
        ((), "error", 0),
        ((), "info", 0),
        ((NOTE,), "error", 0),
        ((NOTE,), "info", 1),
        ((HOSTILE,), "error", 0),
        ((HOSTILE,), "warning", 1),
        ((ERROR,), "error", 1),
        ((ERROR,), "never", 0),
    ],
)
def test_exit_status_follows_fail_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], alerts: tuple[object, ...], fail_on: str, code: int
) -> None:
    verdict = "fail" if alerts == (ERROR,) else "warn" if alerts == (HOSTILE,) else "pass"
    path = write(tmp_path / "watchdog.jsonl", summary=Summary(verdict, alerts))  # type: ignore[arg-type]
    assert run("report", path, "--fail-on", fail_on) == code
    assert f"1 run: 1 {verdict}" in capsys.readouterr().out


@pytest.mark.parametrize("format", cli.FORMATS)
def test_incomplete_and_unreadable_exit_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    killed = write(tmp_path / "killed" / "watchdog.jsonl", Batch(1, (NOTE,)))
    passed = write(tmp_path / "passed" / "watchdog.jsonl", summary=Summary("pass"))
    assert run("report", killed, "--format", format) == 2
    assert run("report", tmp_path / "missing", passed, "--format", format) == 2
    heard = capsys.readouterr()
    assert "missing: No such file" in heard.out
    assert "missing: No such file" in (heard.out if format == "text" else heard.err)


@pytest.mark.parametrize(("fail_on", "code"), [("never", 2), ("error", 1)])
@pytest.mark.parametrize("how", [{"raised": "RuntimeError"}, {"broken": {"check WD102": "Traceback"}}, None], ids=str)
def test_an_alert_does_not_make_a_whole_run_of_one_that_raised(
    tmp_path: Path, fail_on: str, code: int, how: dict[str, Any] | None
) -> None:
    summary = None if how is None else Summary("fail", (ERROR,), **how)
    path = write(tmp_path / "watchdog.jsonl", Batch(1, (ERROR,)), summary=summary)
    assert run("report", path, "--fail-on", fail_on) == code
    assert run("report", path, "--fail-on", fail_on, "--format", "junit", "--output", tmp_path / "junit.xml") == code
    assert JUnitXml.fromfile(str(tmp_path / "junit.xml")).errors == 1


def test_a_failure_outweighs_what_is_incomplete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a" / "watchdog.jsonl", Batch(1, (NOTE,)))
    write(tmp_path / "b" / "watchdog.jsonl", summary=Summary("fail", (ERROR,)))
    assert run("report", tmp_path) == 1


def test_formats_go_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "watchdog.jsonl", summary=Summary("fail", (ERROR,), judged=("WD301",)))
    assert run("report", path, "--format", "junit", "--output", tmp_path / "out" / "junit.xml") == 1
    assert JUnitXml.fromfile(str(tmp_path / "out" / "junit.xml")).failures == 1
    assert run("report", path, "--format", "json", "--output", tmp_path / "out.json") == 1
    assert json.loads((tmp_path / "out.json").read_text())["runs"][0]["verdict"] == "fail"
    assert capsys.readouterr().out == ""
    assert run("report", path, "--output", tmp_path / "watchdog.jsonl" / "below") == 2
    assert "cannot write the report" in capsys.readouterr().err


def test_github_writes_the_job_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "watchdog.jsonl", summary=Summary("fail", (ERROR,)))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert run("report", path, "--format", "github") == 1
    assert capsys.readouterr().out.startswith("::error ")
    assert "### FAIL" in (tmp_path / "summary.md").read_text()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))
    assert run("report", path, "--format", "github") == 1
    assert "no job summary" in capsys.readouterr().err


def test_checks_lists_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("checks") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [[c.code, c.name] for c in CHECKS]


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.code)
def test_explain_shows_every_page(capsys: pytest.CaptureFixture[str], check: cli.Callable[..., object]) -> None:
    for word in (check.code.lower(), check.name):  # type: ignore[attr-defined]
        assert run("explain", word) == 0
        shown = capsys.readouterr().out
        assert check.page in shown  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("all parameters are zero", "WD301"),
        ("weights are nan", "WD303"),
        ("model stays in eval mode", "WD504"),
        ("learning rate is zero", "WD501"),
        ("fp16 underflow", "WD201"),
    ],
)
def test_explain_finds_symptoms(capsys: pytest.CaptureFixture[str], words: str, code: str) -> None:
    assert run("explain", *words.split()) == 0
    shown = capsys.readouterr().out.splitlines()
    assert code in [line.split()[0] for line in shown[:3]]
    assert "shows the page" in shown[-1]


def test_explain_lists_a_prefix_and_admits_defeat(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "WD3") == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed[:-2]] == [c.code for c in CHECKS if c.code.startswith("WD3")]
    assert run("explain", "xyzzy") == 2
    assert "no check speaks of 'xyzzy'" in capsys.readouterr().err
    assert run("explain", "WD999") == 2
    assert "there is no check WD999" in capsys.readouterr().err


def test_explain_shows_what_it_knows_and_names_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "wd101,", "WD999", "WD3011") == 2
    heard = capsys.readouterr()
    assert heard.out.startswith("# WD101 initial-loss-off")
    assert "there is no check WD999, WD3011; did you mean WD3" in heard.err
    assert run("explain", "WD999", "loss", "is", "nan") == 2
    heard = capsys.readouterr()
    assert heard.out.startswith("WD142 ")
    assert "there is no check WD999; `sanity-watchdog checks` lists all" in heard.err


def test_nearest_names_a_typo() -> None:
    assert pages.nearest(["zeroedparameter"])[0] == "zeroed-parameter"
    assert "WD301" in pages.nearest(["wd3011"])


def test_bad_use_ends_with_2_and_the_valid_choices(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in {
        ("report",): "PATH",
        ("report", "x", "--format", "pdf"): "junit",
        ("report", "x", "--fail-on", "loud"): "warning",
        (): "COMMAND",
        ("frobnicate",): "explain",
    }.items():
        with pytest.raises(SystemExit) as stopped:
            run(*arguments)
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err


def alone(
    *arguments: str | Path, program: tuple[str, ...] = ("-c", WITHOUT_TORCH), **environ: str
) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *program, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environ}
    )
    return done.returncode, done.stdout, done.stderr


def test_neither_torch_nor_lightning_nor_rich_is_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "watchdog.jsonl", Batch(1, (ERROR,)), summary=Summary("fail", (ERROR,)))
    for format in cli.FORMATS:
        code, _, errors = alone("report", path, "--format", format)
        assert (code, errors) == (1, "")
    for arguments in (("checks",), ("explain", "WD301"), ("explain", "parameters", "are", "zero"), ("--version",)):
        code, _, errors = alone(*arguments)
        assert (code, errors) == (0, "")


def test_the_module_runs_and_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    code, said, _ = alone("--version", program=("-m", "sanity_watchdog"))
    assert (code, said.split()[0]) == (0, "sanity-watchdog")
    piped = subprocess.run(
        f"{sys.executable} -m sanity_watchdog checks | true", shell=True, capture_output=True, text=True, check=False
    )
    assert piped.stderr == ""


def test_an_ascii_terminal_is_served(tmp_path: Path) -> None:
    path = write(tmp_path / "watchdog.jsonl", summary=Summary("pass", vitals={"loss": "first loss · ok"}))
    code, said, errors = alone("report", path, PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, "")
    assert "first loss ? ok" in said


class Terminal(StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "no_rich"])
@pytest.mark.parametrize("no_color", ["", "1"], ids=["colour", "no_color"])
def test_a_terminal_gets_colours_where_it_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rich: bool, no_color: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm-256color")
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    path = write(tmp_path / "watchdog.jsonl", summary=Summary("fail", (ERROR, HOSTILE)))
    assert run("report", path) == 1
    assert ("\033[" in terminal.getvalue()) == (rich and not no_color)
    plain = re.sub(r"\033\[[\d;]*m", "", terminal.getvalue())
    assert "WD301 zeroed-parameter  ERROR  step 8–13 (3×)  net.0.weight" in plain
    assert "[link" not in plain
    assert run("explain", "WD301") == 0


def test_many_records_are_counted_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(25):
        write(tmp_path / str(number) / "watchdog.jsonl", summary=Summary("pass"))
    assert run("report", tmp_path) == 0
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run("report", tmp_path) == 0
    assert terminal.getvalue().endswith("\rreading 25 of 25 records\n")
    assert run("report", tmp_path / "3") == 0
    assert terminal.getvalue().count("\n") == 1
