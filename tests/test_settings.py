from typing import Any

import pytest

from sanity_watchdog import LossWatch, SanityWatchdog
from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import CHECKS
from sanity_watchdog.settings import Settings

BY_CODE = {c.code: c for c in CHECKS}


def make(**kwargs: object) -> Settings:
    return Settings.make(**{"environ": {}, **kwargs})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        (
            {"select": ["WD999"]},
            "unknown check 'WD999' in select; valid are codes.*`sanity-watchdog checks` lists them",
        ),
        ({"ignore": ["double_softmax:net"]}, "unknown check 'double_softmax' in ignore; did you mean double-softmax?"),
        ({"ignore": [":net.0"]}, "unknown check ''"),
        ({"select": ["WD3"], "ignore": ["WD3"]}, "both selected and ignored"),
        ({"options": {"WD999": {}}}, "unknown check 'WD999' in options"),
        ({"options": {"WD3": {}}}, "one check"),
        (
            {"options": {"WD002": {"tolerance": 1}}},
            "unknown option 'tolerance' of WD002 nothing-judged; valid are none",
        ),
        ({"targets": ["gameboy"]}, "unknown target 'gameboy'; valid are cpu, cuda, mps, tpu, xla, xpu"),
        ({"every_n_steps": 0}, "at least 1"),
        ({"every_n_steps": True}, "whole number"),
        ({"fail_on": "fatal"}, "valid are info, warning, error"),
        ({"num_classes": 1}, "at least 2"),
        ({"num_classes": 10, "expected_loss": 2.3}, "contradict"),
        ({"expected_loss": "2.3"}, "finite number of nats"),
        ({"expected_loss": float("nan")}, "finite number of nats"),
        ({"expected_loss": True}, "finite number of nats"),
    ],
)
def test_bad_values_list_the_valid_ones(kwargs: dict[str, object], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        make(**kwargs)


@pytest.mark.parametrize(
    "kwargs", [{"select": "WD3"}, {"ignore": "WD3"}, {"targets": "mps"}, {"options": {"WD301": 3}}]
)
def test_values_of_the_wrong_kind(kwargs: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        make(**kwargs)


def test_what_is_called_with_alerts_must_be_callable() -> None:
    with pytest.raises(TypeError, match="on_alert must be callable with an alert, got 3"):
        SanityWatchdog(on_alert=3)  # type: ignore[arg-type]


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="tolerence"):
        SanityWatchdog(tolerence=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("kwargs", "selected"),
    [
        ({}, {"WD001", "WD002", "WD301", "WD303"}),
        ({"select": ["WD301"]}, {"WD001", "WD002", "WD301"}),
        ({"select": ["zeroed-parameter"]}, {"WD001", "WD002", "WD301"}),
        ({"select": ["WD3"], "ignore": ["WD303"]}, {"WD001", "WD002", "WD301", "WD303"}),
        ({"ignore": ["WD301:net.*"]}, {"WD001", "WD002", "WD301", "WD303"}),
    ],
)
def test_selection(kwargs: dict[str, object], selected: set[str]) -> None:
    settings = make(**kwargs)
    assert {c for c in ("WD001", "WD002", "WD301", "WD303") if settings.selected(BY_CODE[c])} == selected


def test_codes_and_names_are_taken_in_any_case() -> None:
    settings = make(
        select=["wd3", "Double-Softmax"],
        ignore={"wd301:net.Mask": "pruned", "WD1": "", "Zeroed-parameter": ""},
        options={"wd101": {"tolerance": 0.5}},
    )
    assert settings.select == ("WD3", "double-softmax")
    assert settings.ignore == {"WD301:net.Mask": "pruned", "WD1": "", "zeroed-parameter": ""}
    assert settings.options == {"WD101": {"tolerance": 0.5}}
    with pytest.raises(ValueError, match="both selected and ignored"):
        make(select=["wd3"], ignore=["WD3"])
    with pytest.raises(ValueError, match=r"unknown check 'wd3011' in ignore; did you mean .*WD301"):
        make(ignore=["wd3011"])


def test_silencing_by_subject_and_by_place() -> None:
    alert = Alert("WD301", "zeroed-parameter", Severity.ERROR, "m", subjects=("a.mask", "b"), where="net.py:3")
    settings = make(ignore={"WD301:*.mask": "pruned on purpose"})
    assert settings.silences(alert, "a.mask") == "WD301:*.mask"
    assert settings.silences(alert, "b") is None
    assert make(ignore=["zeroed-parameter:net.py:*"]).silences(alert, "") == "zeroed-parameter:net.py:*"


def test_targets_of_several_callbacks_are_added() -> None:
    some, more = Settings.make(targets=["mps"]), Settings.make(targets=["cuda", "mps"])
    assert Settings.make().joined(some).joined(more).targets == ("mps", "cuda")


def test_several_callbacks_add_their_selections_and_must_agree_otherwise() -> None:
    loss, gradients, everything = make(select=["WD1"]), make(select=["WD2"]), make()
    assert loss.joined(gradients).select == ("WD1", "WD2")
    assert loss.joined(everything).select == ()
    with pytest.raises(ValueError, match="disagree on every_n_steps: 5 and 7"):
        make(every_n_steps=5).joined(make(every_n_steps=7))


def test_what_one_of_several_callbacks_leaves_open_the_others_decide() -> None:
    given: dict[str, Any] = {"every_n_steps": 7, "record": "x", "fail_on": "error", "num_classes": 3}
    for joined in (make(**given).joined(make()), make().joined(make(**given))):
        assert joined == make(**given)
    both = make(ignore=["WD301"]).joined(make(ignore={"WD2": "known"}, options={"WD101": {"tolerance": 0.5}}))
    assert (both.ignore, both.options) == ({"WD301": "", "WD2": "known"}, {"WD101": {"tolerance": 0.5}})
    quiet = Settings.make(fail_on=None, environ={"CI": "1"}).joined(Settings.make(environ={"CI": "1"}), {"CI": "1"})
    assert quiet.policy.threshold is None


def test_concerns_are_default_selections() -> None:
    assert LossWatch().settings.select == ("WD1",)
    assert LossWatch(select=["WD301"]).settings.select == ("WD301",)
    assert SanityWatchdog().settings.select == ()


def test_record_from_argument_then_environment() -> None:
    assert make(environ={"SANITY_WATCHDOG_RECORD": "x"}).record == "x"
    assert make(record="y", environ={"SANITY_WATCHDOG_RECORD": "x"}).record == "y"
    assert make(environ={"SANITY_WATCHDOG_RECORD": ""}).record is None
    assert make(record=b"z").record == "z"


def test_xla_is_a_tpu() -> None:
    assert make(targets=["xla"]).targets == ("tpu",)


def test_options_are_kept_by_code_and_must_be_of_their_kind() -> None:
    assert make(options={"initial-loss-off": {"tolerance": 0.5}}).options["WD101"] == {"tolerance": 0.5}
    with pytest.raises(TypeError, match="takes a finite number"):
        make(options={"WD101": {"tolerance": "a lot"}})
    with pytest.raises(TypeError, match="takes a finite number"):
        make(options={"WD101": {"tolerance": float("nan")}})
    with pytest.raises(ValueError, match="one check"):
        make(options={"WD1": {"tolerance": 0.5}})


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"save_batches": "no"}, "save_batches must be True or False, got 'no'"),
        ({"ignore": None}, "ignore takes a list of codes, got None"),
        ({"targets": None}, "targets takes a list of accelerators, got None"),
        ({"targets": "mps"}, "targets takes a list of accelerators, not the string 'mps'"),
        ({"ignore": [102]}, "ignore takes codes and names of checks, got 102"),
        ({"options": ["WD101"]}, "options takes a dictionary"),
        ({"record": 5}, "record must be a path, got 5"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_with_the_right_one(kwargs: dict[str, object], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        make(**kwargs)


def test_two_policies_are_told_as_the_user_wrote_them() -> None:
    with pytest.raises(ValueError, match='disagree on fail_on: fail_on="error" and fail_on="info"'):
        make(fail_on="error").joined(make(fail_on="info"))
