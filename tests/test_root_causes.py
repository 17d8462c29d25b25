"""Which alert silences which, in the registry as it stands."""

from dataclasses import replace

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import CHECKS
from sanity_watchdog.ranking import explain

IMPLIED = {c.code: c.implied_by for c in CHECKS}
NAMES = {c.code: c.name for c in CHECKS}
EXPLAINS = {
    "WD506": ("WD314", "WD316"),
    "WD501": ("WD204", "WD316"),
    "WD502": ("WD501",),
    "WD311": ("WD217", "WD316"),
    "WD312": ("WD217", "WD311", "WD316"),
    "WD142": ("WD143", "WD203", "WD303"),
    "WD203": ("WD316",),
    "WD217": ("WD214", "WD316"),
    "WD134": ("WD132",),
    "WD108": ("WD144",),
    "WD133": ("WD314", "WD316"),
    "WD201": ("WD212", "WD316"),
    "WD212": ("WD316",),
    "WD202": ("WD201", "WD211"),
    "WD204": ("WD316",),
    "WD206": ("WD316",),
    "WD211": ("WD142",),
    "WD216": ("WD143", "WD213", "WD317"),
    "WD318": ("WD301", "WD316", "WD317"),
    "WD121": ("WD101", "WD142"),
    "WD123": ("WD101", "WD214", "WD317"),
    "WD105": ("WD101", "WD142"),
    "WD122": ("WD141", "WD316", "WD508"),
}
STRANGERS = (("WD102", "WD101"), ("WD316", "WD311"), ("WD214", "WD201"), ("WD303", "WD142"), ("WD317", "WD318"))


def alert(code: str, *subjects: str, step: int = 1) -> Alert:
    return Alert(code, NAMES[code], Severity.ERROR, "m", step=step, subjects=subjects)


@pytest.mark.parametrize(("cause", "symptom"), [(c, s) for c, several in EXPLAINS.items() for s in several])
def test_a_root_cause_silences_its_symptom(cause: str, symptom: str) -> None:
    left, gone = explain([alert(symptom, "a"), alert(cause)], IMPLIED)
    assert [a.code for a in left] == [cause]
    assert [a.code for a in gone] == [symptom]


@pytest.mark.parametrize(("one", "other"), STRANGERS)
def test_what_is_no_cause_silences_nothing(one: str, other: str) -> None:
    left, gone = explain([alert(one), alert(other)], IMPLIED)
    assert {a.code for a in left} >= {other}
    assert other not in {a.code for a in gone}


def test_an_optimizer_that_holds_nothing_of_the_module_is_one_alert() -> None:
    wrong = [alert("WD312"), alert("WD311", "a", "b"), alert("WD316"), alert("WD217")]
    assert [a.code for a in explain(wrong, IMPLIED)[0]] == ["WD312"]


def test_what_is_dropped_altogether_has_no_dead_units() -> None:
    dropped, silent = alert("WD505", "net.2", step=0), alert("WD214", "net.0.bias", step=13)
    assert [a.code for a in explain([dropped, silent], IMPLIED)[0]] == ["WD505"]
    in_evaluation = replace(dropped, stage="validation")
    assert {a.code for a in explain([in_evaluation, silent], IMPLIED)[0]} == {"WD505", "WD214"}


def test_a_loss_without_a_floor_drives_gradients_up_but_not_those_at_the_start() -> None:
    flipped, grown = alert("WD108", "cross_entropy", step=0), alert("WD213", "net.2.weight", step=13)
    assert [a.code for a in explain([flipped, grown], IMPLIED)[0]] == ["WD108"]
    assert {a.code for a in explain([flipped, replace(grown, step=0)], IMPLIED)[0]} == {"WD108", "WD213"}


def test_what_enters_unscaled_reaches_the_loss_whatever_operation_it_enters() -> None:
    entering, loss = alert("WD123", "conv2d", step=0), alert("WD101", "cross_entropy", step=0)
    assert [a.code for a in explain([entering, loss], IMPLIED)[0]] == ["WD123"]
    in_validation = replace(entering, stage="validation")
    assert {a.code for a in explain([in_validation, loss], IMPLIED)[0]} == {"WD123", "WD101"}
