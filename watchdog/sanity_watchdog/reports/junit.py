"""Runs as JUnit XML, one suite per run, one test case per check: for GitLab, Jenkins and whatever else reads it."""

from collections.abc import Iterable
from datetime import datetime, timezone
from xml.etree import ElementTree as Xml

from ..alerts import Alert, Severity, printable, render
from .closing import checks_line, verdict_line
from .load import Loaded
from .run import WatchedRun


def report(loaded: Loaded, threshold: Severity | None) -> str:
    """An alert at or above ``threshold`` is a failure, a milder one is output of a passed test case; what broke, did
    not end or cannot be read is an error; a check that could not judge is skipped.
    """
    root = Xml.Element("testsuites", name="sanity-watchdog")
    for run in loaded.runs:
        suite = _suite(root, printable(run.name, 400), _cases(run, threshold), _closing(run))
        _times(suite, run)
    if loaded.problems:
        cases = [_case("records", printable(p, 400), "error", "unreadable", printable(p, 400)) for p in loaded.problems]
        _suite(root, "unreadable records", cases, "")
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, 0)) for suite in root)))
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, "unicode") + "\n"


def _closing(run: WatchedRun) -> str:
    return f"{verdict_line(run.summary)}\n{checks_line(run.summary)}"


def _times(suite: Xml.Element, run: WatchedRun) -> None:
    """When the run began and how many seconds it took, where its record says so."""
    try:
        began = datetime.fromtimestamp(run.started, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return
    if run.started > 0:
        suite.set("timestamp", began.isoformat(timespec="seconds"))
        if run.ended >= run.started:
            suite.set("time", f"{run.ended - run.started:.3f}")


def class_name(name: str) -> str:
    """A run's name with dots between folders only: readers take what is before the last one for a package.

    ``logs/version_3/watchdog.jsonl (fit 2 of 2)`` becomes ``sanity-watchdog.logs.version_3 (fit 2 of 2)``.
    """
    path, record, fit = name.partition(".jsonl")
    parts = [part.replace(".", "_") for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if record and len(parts) > 1 and parts[-1] == "watchdog":
        parts.pop()
    return ".".join(["sanity-watchdog", *parts]) + fit.replace("/", "_").replace(".", "_")


def _suite(root: Xml.Element, name: str, cases: Iterable[Xml.Element], output: str) -> Xml.Element:
    suite = Xml.SubElement(root, "testsuite", name=name)
    suite.extend(cases)
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in suite)))
    suite.set("tests", str(len(suite)))
    if output:
        Xml.SubElement(suite, "system-out").text = output
    return suite


def _case(suite: str, name: str, kind: str = "", message: str = "", text: str = "") -> Xml.Element:
    case = Xml.Element("testcase", classname=class_name(suite), name=name)
    if kind:
        Xml.SubElement(case, kind, message=message).text = text
    return case


def _cases(run: WatchedRun, threshold: Severity | None) -> list[Xml.Element]:
    summary, name = run.summary, printable(run.name, 400)
    alerts: dict[str, list[Alert]] = {}
    for alert in summary.alerts:
        alerts.setdefault(alert.code, []).append(alert)
    ignored = {i.alert.code: i for i in summary.ignored}
    cases = []
    for code in sorted({*alerts, *summary.judged, *summary.skipped, *ignored}):
        if code in alerts:
            cases.append(_found(name, alerts[code], threshold))
        elif code in ignored:
            reason = printable(ignored[code].reason) or "no reason given"
            cases.append(_case(name, _title(code), "skipped", f"ignored by {printable(ignored[code].entry)}: {reason}"))
        elif code in summary.judged:
            cases.append(_case(name, _title(code)))
        else:
            cases.append(_case(name, _title(code), "skipped", printable(summary.skipped[code])))
    for what, traceback in summary.broken.items():
        text = "\n".join(printable(line) for line in traceback.split("\n"))
        cases.append(_case(name, printable(what), "error", "a part of the watchdog broke; the run went on", text))
    if run.unfinished and not summary.broken:
        cases.append(_case(name, "end of the run", "error", run.unfinished))
    cases += [_case(name, "record", "error", printable(problem)) for problem in run.problems]
    return cases


def _found(name: str, alerts: list[Alert], threshold: Severity | None) -> Xml.Element:
    text = "\n".join(render(a) for a in alerts)
    title = f"{printable(alerts[0].code)} {printable(alerts[0].name)}"
    failing = [a for a in alerts if threshold is not None and a.severity >= threshold]
    if failing:
        return _case(name, title, "failure", printable(failing[0].message), text)
    case = _case(name, title)
    Xml.SubElement(case, "system-out").text = text
    return case


def _title(code: str) -> str:
    from ..checks import CHECKS

    names = {c.code: c.name for c in CHECKS}
    return f"{printable(code)} {names.get(code, '')}".strip()
