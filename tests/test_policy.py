import pickle

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.policy import Policy, SanityCheckFailed

ERROR = Alert("WD301", "zeroed-parameter", Severity.ERROR, "all values are zero", subjects=("net.0.weight",))
WARNING = Alert("WD203", "stuck-scaler", Severity.WARNING, "skips")


@pytest.mark.parametrize(
    ("fail_on", "environ", "threshold"),
    [
        ("auto", {}, None),
        ("auto", {"CI": "true"}, Severity.ERROR),
        ("auto", {"CI": "1"}, Severity.ERROR),
        ("auto", {"CI": "false"}, None),
        ("auto", {"CI": "0"}, None),
        ("auto", {"CI": ""}, None),
        ("auto", {"CI": "true", "SANITY_WATCHDOG_FAIL_ON": "warning"}, Severity.WARNING),
        ("auto", {"CI": "true", "SANITY_WATCHDOG_FAIL_ON": "none"}, None),
        ("auto", {"CI": "true", "SANITY_WATCHDOG_FAIL_ON": "never"}, None),
        ("auto", {"SANITY_WATCHDOG_FAIL_ON": "auto", "CI": "true"}, Severity.ERROR),
        (None, {"CI": "true", "SANITY_WATCHDOG_FAIL_ON": "error"}, None),
        ("info", {"SANITY_WATCHDOG_FAIL_ON": "error"}, Severity.INFO),
        ("ERROR", {}, Severity.ERROR),
    ],
)
def test_argument_then_environment_then_default(
    fail_on: str | None, environ: dict[str, str], threshold: object
) -> None:
    assert Policy.resolve(fail_on, environ).threshold == threshold


def test_auto_announces_itself_only_in_ci() -> None:
    assert "fail_on=None turns that off" in Policy.resolve("auto", {"CI": "true"}).notice
    assert not Policy.resolve("auto", {}).notice
    assert not Policy.resolve("error", {"CI": "true"}).notice


@pytest.mark.parametrize(("fail_on", "environ"), [("fatal", {}), ("auto", {"SANITY_WATCHDOG_FAIL_ON": "fatal"})])
def test_unknown_severity_says_where_it_came_from(fail_on: str, environ: dict[str, str]) -> None:
    with pytest.raises(
        ValueError, match=r"(fail_on|SANITY_WATCHDOG_FAIL_ON): unknown severity 'fatal'; valid are info"
    ):
        Policy.resolve(fail_on, environ)


def test_the_exception_names_the_worst_at_once_and_all_alerts_the_worst_last() -> None:
    failure = Policy.resolve("error", {}).stop((WARNING, ERROR))
    assert failure.alerts == (ERROR, WARNING)
    text = str(failure)
    assert text == f'2 alerts, stopped by fail_on="error": WD301 zeroed-parameter\n{WARNING}\n{ERROR}'
    assert str(SanityCheckFailed((ERROR,), "fail_on")).startswith("1 alert, stopped by fail_on: WD301")
    again = pickle.loads(pickle.dumps(failure))
    assert isinstance(again, SanityCheckFailed)
    assert (again.alerts, str(again)) == (failure.alerts, text)


@pytest.mark.parametrize(
    ("fail_on", "alerts", "stops"),
    [("error", (WARNING,), False), ("warning", (WARNING,), True), ("error", (ERROR,), True), (None, (ERROR,), False)],
)
def test_reached(fail_on: str | None, alerts: tuple[Alert, ...], stops: bool) -> None:
    assert Policy.resolve(fail_on, {}).reached(alerts) is stops
