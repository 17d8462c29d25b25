from dataclasses import replace

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import CHECKS
from sanity_watchdog.ranking import explain, ranked

IMPLIED = {"SYMPTOM": ("CAUSE",), "MIDDLE": ("CAUSE",), "LAST": ("MIDDLE",)}


def alert(code: str, *subjects: str, severity: Severity = Severity.ERROR, step: int = 0) -> Alert:
    return Alert(code, code.lower(), severity, "m", step=step, subjects=subjects)


@pytest.mark.parametrize(
    ("alerts", "standing"),
    [
        ([alert("SYMPTOM", "a")], ["SYMPTOM"]),
        ([alert("SYMPTOM", "a"), alert("CAUSE")], ["CAUSE"]),
        ([alert("SYMPTOM", "a"), alert("CAUSE", "a", "b")], ["CAUSE"]),
        ([alert("SYMPTOM", "a", "b"), alert("CAUSE", "a")], ["SYMPTOM", "CAUSE"]),
        ([alert("SYMPTOM"), alert("CAUSE", "a")], ["CAUSE"]),
        ([alert("SYMPTOM"), alert("CAUSE", severity=Severity.INFO)], ["SYMPTOM", "CAUSE"]),
        ([alert("SYMPTOM", severity=Severity.INFO), alert("CAUSE", severity=Severity.INFO)], ["CAUSE"]),
        ([alert("CAUSE"), alert("MIDDLE"), alert("LAST")], ["CAUSE"]),
        ([alert("SYMPTOM", "layer"), alert("CAUSE", "batch[0]")], ["CAUSE"]),
        ([alert("SYMPTOM", "batch[1]"), alert("CAUSE", "batch[0]")], ["SYMPTOM", "CAUSE"]),
        ([alert("SYMPTOM", "layer"), alert("CAUSE", "batch_norm.weight")], ["SYMPTOM", "CAUSE"]),
    ],
    ids=[
        "alone",
        "whole-cause",
        "covered",
        "difference-remains",
        "pooled",
        "info-explains-nothing-worse",
        "infos",
        "chain",
        "data-explain-layers",
        "other-data",
        "a-layer-is-no-data",
    ],
)
def test_what_a_root_cause_explains(alerts: list[Alert], standing: list[str]) -> None:
    left, gone = explain(alerts, IMPLIED)
    assert [a.code for a in left] == standing
    assert len(left) + len(gone) == len(alerts)


def test_a_suspicion_is_explained_by_the_same_code_that_is_sure_of_the_line() -> None:
    suspected = replace(alert("CAUSE", severity=Severity.WARNING, step=3))
    sure = replace(alert("CAUSE"), where="train.py:40")
    assert explain([suspected, sure], IMPLIED) == ([sure], [suspected])
    for other in (replace(sure, step=4), replace(sure, where=""), replace(sure, severity=Severity.WARNING)):
        assert len(explain([suspected, other], IMPLIED)[0]) == 2
    assert len(explain([replace(suspected, where="train.py:9"), sure], IMPLIED)[0]) == 2


def test_what_was_there_before_the_first_batch_is_explained_by_nothing_later() -> None:
    early = replace(alert("SYMPTOM", "a"), stage="start")
    left, gone = explain([alert("CAUSE"), early], IMPLIED)
    assert not gone
    assert ranked(left, IMPLIED)[0] is not left[0]


def test_what_was_seen_before_any_weight_changed_is_explained_by_nothing_later() -> None:
    alerts = [alert("CAUSE", step=9), alert("SYMPTOM"), alert("LAST", step=9)]
    left, gone = explain(alerts, {**IMPLIED, "LAST": ("CAUSE",)})
    assert [a.code for a in left] == ["CAUSE", "SYMPTOM"]
    assert [a.code for a in gone] == ["LAST"]


def test_only_the_difference_of_subjects_remains() -> None:
    (left, _), _ = explain([alert("SYMPTOM", "a", "b"), alert("CAUSE", "a")], IMPLIED)
    assert left.subjects == ("b",)


def test_ignored_causes_still_explain() -> None:
    left, gone = explain([alert("SYMPTOM", "a")], IMPLIED, causes=[alert("CAUSE")])
    assert not left
    assert [a.code for a in gone] == ["SYMPTOM"]


@pytest.mark.parametrize(("step", "standing"), [(5, ["SYMPTOM", "CAUSE"]), (6, ["CAUSE"])])
def test_another_rank_explains_only_what_came_later(step: int, standing: list[str]) -> None:
    cause, symptom = replace(alert("CAUSE", step=5), ranks=(0,)), replace(alert("SYMPTOM", step=step), ranks=(1, 0))
    left, _ = explain([symptom, cause], IMPLIED)
    assert [a.code for a in left] == standing


def test_a_cause_is_as_severe_as_what_it_explains() -> None:
    cause = alert("CAUSE", severity=Severity.WARNING)
    (left,), gone = explain([cause, alert("MIDDLE", severity=Severity.WARNING), alert("LAST")], IMPLIED)
    assert (left.code, left.severity) == ("CAUSE", Severity.ERROR)
    assert [a.severity for a in gone] == [Severity.WARNING, Severity.ERROR]
    (left,), _ = explain([cause, alert("MIDDLE", severity=Severity.INFO)], IMPLIED)
    assert left.severity is Severity.WARNING


def test_worst_first_then_what_came_first_then_causes() -> None:
    order = ranked(
        [
            alert("WARN", severity=Severity.WARNING),
            alert("SYMPTOM", step=3),
            alert("LATE", step=9),
            alert("CAUSE", step=3),
        ],
        IMPLIED,
    )
    assert [a.code for a in order] == ["CAUSE", "SYMPTOM", "LATE", "WARN"]


def test_the_registry_has_no_circular_causes() -> None:
    implied = {c.code: c.implied_by for c in CHECKS}

    def causes(code: str, seen: tuple[str, ...] = ()) -> None:
        assert code not in seen, f"{code} explains itself through {seen}"
        for cause in implied.get(code, ()):
            causes(cause, (*seen, code))

    for code in implied:
        causes(code)


def test_root_causes_are_checks() -> None:
    known = {c.code for c in CHECKS}
    assert {cause for c in CHECKS for cause in c.implied_by} <= known


@pytest.mark.parametrize(
    ("ranks", "step", "standing"),
    [((1, 0), 5, ["WD142"]), ((0, 1), 5, ["WD142", "WD211"]), ((1,), 6, ["WD142", "WD211"])],
    ids=["another-rank's", "its-own", "later"],
)
def test_one_ranks_loss_explains_the_gradients_of_the_others(
    ranks: tuple[int, ...], step: int, standing: list[str]
) -> None:
    loss = replace(alert("WD142", step=step), ranks=ranks)
    gradients = replace(alert("WD211", "layer", step=5), ranks=(0, 2))
    left, _ = explain([loss, gradients], {})
    assert [a.code for a in left] == standing
