import math
import pickle

import pytest

from sanity_watchdog.alerts import Alert, Severity, place, printable, render, silencer

ZEROED = Alert(
    "WD301",
    "zeroed-parameter",
    Severity.ERROR,
    "all 2048 values are exactly zero; at the start they were not",
    step=8,
    hint="look for a mask, an in-place edit or weight decay that reaches this tensor",
    subjects=("net.0.weight",),
    evidence=(("zeros", 2048), ("numel", 2048), ("dtype", "float32")),
)


def test_an_alert_reads_as_the_design_shows_it() -> None:
    assert render(ZEROED) == (
        "WD301 zeroed-parameter  ERROR  step 8  net.0.weight\n"
        "  all 2048 values are exactly zero; at the start they were not\n"
        "  zeros=2,048 numel=2,048 dtype=float32\n"
        "  fix: look for a mask, an in-place edit or weight decay that reaches this tensor\n"
        '  silence: SanityWatchdog(ignore=["WD301:net.0.weight"])   explain: sanity-watchdog explain WD301'
    )


def test_alerts_are_values() -> None:
    one = Alert("WD142", "non-finite-loss", Severity.ERROR, "nan", evidence=(("loss", math.nan),))
    other = Alert("WD142", "non-finite-loss", Severity.ERROR, "nan", evidence=(("loss", float("nan")),))
    assert one == other == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(other)
    assert one != Alert("WD142", "non-finite-loss", Severity.ERROR, "nan", evidence=(("loss", 1.0),))


def test_merging_keeps_the_first_message_unless_the_later_is_worse() -> None:
    first = Alert("WD203", "stuck-scaler", Severity.WARNING, "first", step=3, subjects=("a",))
    same = first.merged(Alert("WD203", "stuck-scaler", Severity.WARNING, "later", step=9, subjects=("b", "a")))
    assert (same.message, same.step, same.last_step, same.count, same.subjects) == ("first", 3, 9, 2, ("a", "b"))
    worse = first.merged(Alert("WD203", "stuck-scaler", Severity.ERROR, "worse", step=9))
    assert (worse.message, worse.severity, worse.step) == ("worse", Severity.ERROR, 3)


def test_merging_keeps_ranks() -> None:
    first = Alert("WD142", "non-finite-loss", Severity.ERROR, "m", step=5, ranks=(1,))
    later = Alert("WD142", "non-finite-loss", Severity.ERROR, "m", step=6, ranks=(0,))
    assert first.merged(later).ranks == later.merged(first).ranks == (1, 0), "the first one first"


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "x" * 10_000, "\ud800", "a|b<script>"])
def test_hostile_names_stay_on_one_line(name: str) -> None:
    alert = Alert("WD301", "zeroed-parameter", Severity.ERROR, name, subjects=(name,), hint=name, where=name)
    text = render(alert)
    text.encode()
    assert "\x1b" not in text
    assert len(text.splitlines()) == 5
    assert len(printable(name)) <= 160


def test_many_subjects_are_cut_and_silenced_as_a_whole() -> None:
    alert = Alert("WD301", "zeroed-parameter", Severity.ERROR, "m", subjects=tuple(f"layer.{i}" for i in range(50)))
    assert "and 44 more" in render(alert)
    assert silencer(alert) == 'SanityWatchdog(ignore=["WD301"])'


@pytest.mark.parametrize("text", ["error", "ERROR", "Error", Severity.ERROR])
def test_severity_by_name(text: str) -> None:
    assert Severity.parse(text) is Severity.ERROR


def test_unknown_severity_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="info, warning, error"):
        Severity.parse("fatal")


def test_many_ranks_are_cut() -> None:
    seen = Alert("WD142", "non-finite-loss", Severity.ERROR, "m", step=5, ranks=(3, *range(1000)))
    assert place(seen) == "step 5  rank 3, 0, 1, 2 and 997 more"
