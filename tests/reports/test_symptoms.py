"""The symptom index: every phrase leads to its check, every check that can alarm is led to."""

import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks import CHECKS
from sanity_watchdog.reports import pages
from sanity_watchdog.reports.symptoms import SYMPTOMS, Symptom

ALL = [symptom for group in SYMPTOMS.values() for symptom in group]


@pytest.mark.parametrize("symptom", ALL, ids=lambda s: s.seen)
def test_a_symptom_leads_to_its_checks(symptom: Symptom) -> None:
    found = [c.code for c in pages.search(symptom.seen.split())]
    assert found[0] == symptom.codes[0]
    assert set(symptom.codes[:3]) <= set(found[: pages.SHOWN])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("my loss is always nan", "WD142"),
        ("model not learning", "WD141"),
        ("lr stays at zero", "WD501"),
        ("weights not updating", "WD316"),
        ("mps not implemented", "WD406"),
        ("out of memory after a while", "WD509"),
        ("ddp hangs", "WD604"),
        ("gradients none", "WD314"),
        ("my loss is always 0.69", "WD141"),
        ("stuck at 2.3", "WD141"),
        ("loss stays at 6.9", "WD141"),
        ("loss remains 0.6931 with torch2.3", "WD141"),
        ("first loss is 2.3 with lightning2.5", "WD101"),
    ],
)
def test_other_words_for_a_symptom_lead_there_too(words: str, code: str) -> None:
    assert pages.search(words.split())[0].code == code


def test_no_phrase_stands_twice_and_every_check_that_can_alarm_is_led_to() -> None:
    assert len({s.seen for s in ALL}) == len(ALL)
    known = {c.code for c in CHECKS}
    assert all(s.codes and set(s.codes) <= known and len(set(s.codes)) == len(s.codes) for s in ALL)
    alarming = {c.code for c in CHECKS if c.severity >= Severity.WARNING}
    assert alarming <= {s.codes[0] for s in ALL}
