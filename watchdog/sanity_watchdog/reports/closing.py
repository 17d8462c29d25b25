"""The two lines that end a run: its verdict with the vital signs, and what was and was not looked at."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..alerts import Alert, Severity, counted, printable
from ..summary import Ignored, Summary

VITALS = ("loss", "runtime", "parameters", "gradients")
GROUPS_SHOWN = 3
CODES_SHOWN = 3
NAMES_SHOWN = 4


def tally(alerts: Iterable[Alert]) -> str:
    """How many alerts of each severity, worst first; empty when there are none."""
    found = Counter(a.severity for a in alerts)
    nouns = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
    return ", ".join(counted(found[s], noun) for s, noun in nouns.items() if found[s])


def vitals_line(vitals: Mapping[str, str]) -> str:
    """The vital signs in their usual order."""
    keys = sorted(vitals, key=lambda k: VITALS.index(k) if k in VITALS else len(VITALS))
    return " · ".join(printable(vitals[k]) for k in keys)


def verdict_line(summary: Summary) -> str:
    """The verdict, why it is so, and the vital signs."""
    parts = [tally(summary.alerts)]
    if summary.broken:
        parts.append("broke: " + _some([printable(b, 60) for b in summary.broken]))
    if summary.stopped_by:
        parts.append("stopped by " + printable(summary.stopped_by))
    if summary.raised:
        parts.append(f"the run raised {printable(summary.raised, 60)} at step {summary.step:,}")
    parts.append(vitals_line(summary.vitals))
    return f"watchdog: {summary.verdict}. " + (" · ".join(p for p in parts if p) or "nothing to report")


def checks_line(summary: Summary, where: str = "") -> str:
    """How many checks judged, which were skipped and why, what was silenced, where to read on."""
    judged, skipped, ignored = len(summary.judged), len(summary.skipped), len(summary.ignored)
    text = f"watchdog: {counted(judged + skipped, 'check')}: {judged} judged, {skipped} skipped"
    if skipped:
        text += f" ({reasons(summary.skipped)})"
    text += f", {ignored} ignored"
    if ignored:
        text += f" ({_some([_entry(i) for i in summary.ignored], 3)})"
    if summary.unused_ignores:
        unused = _some([printable(u, 60) for u in summary.unused_ignores])
        text += f" · silenced nothing: {unused}"
    return text + (f" · {where}" if where else "")


def _entry(ignored: Ignored) -> str:
    return printable(ignored.entry + (f": {ignored.reason}" if ignored.reason else ""), 80)


def reasons(skipped: Mapping[str, str], shown: int = GROUPS_SHOWN) -> str:
    """Skipped checks by reason, the most particular reasons first, cut after a few."""
    groups: dict[str, list[str]] = {}
    for code in sorted(skipped):
        groups.setdefault(printable(skipped[code], 60), []).append(code)
    parts = [f"{_some(codes, CODES_SHOWN)}: {reason}" for reason, codes in sorted(groups.items(), key=_commonness)]
    return "; ".join(parts[:shown] + ["…"] * (len(parts) > shown))


def _commonness(group: tuple[str, list[str]]) -> int:
    return len(group[1])


def _some(names: Sequence[str], shown: int = NAMES_SHOWN) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")
