from dataclasses import replace
from typing import Any

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.units import dead_units, saturated_units
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.units import SaturatedUnits, SilentLayer, SilentUnits

DEAD = SilentLayer(name="net.0.bias", silent=60, units=64)
FEW = SilentLayer(name="net.2.bias", silent=31, units=64)
SILENT = SilentUnits(layers=(DEAD, FEW), samples=7, measured=3)
FLAT = SaturatedUnits(layers=(("net.1", "Tanh", 0.97), ("net.3", "Tanh", 0.2)))

FIRING: list[tuple[Check[Any], Evidence]] = [
    (dead_units, SILENT),
    (dead_units, replace(SILENT, layers=(replace(DEAD, silent=64), replace(FEW, silent=45)))),
    (dead_units, replace(SILENT, layers=(SilentLayer(name="net.0.bias", silent=8, units=8),))),
    (dead_units, replace(SILENT, layers=(replace(DEAD, silent=64, bare=True),))),
    (dead_units, replace(SILENT, faintest=1e-12)),
    (dead_units, replace(SILENT, largest=0.0, loss=0.0)),
    (dead_units, replace(SILENT, largest=0.0, loss=0.6)),
    (saturated_units, FLAT),
    (saturated_units, SaturatedUnits(layers=(("net.py:12", "tanh", 0.77),))),
    (dead_units, replace(SILENT, layers=(replace(DEAD, silent=64),), waits=True)),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (dead_units, replace(SILENT, layers=(FEW,))),
    (dead_units, replace(SILENT, layers=(replace(DEAD, bare=True),))),
    (dead_units, replace(SILENT, layers=(replace(FEW, silent=40), SilentLayer(name="a", silent=20, units=32)))),
    (dead_units, replace(SILENT, layers=())),
    (dead_units, replace(SILENT, largest=0.0, loss=0.0, head=0.0)),
    (saturated_units, SaturatedUnits(layers=(("net.3", "Tanh", 0.2),))),
    (saturated_units, SaturatedUnits(layers=(("net.3", "Hardtanh", 0.6),))),
    (saturated_units, SaturatedUnits(layers=())),
]


def test_only_the_layers_over_the_limit_are_subjects() -> None:
    (found,) = dead_units(SILENT)
    assert isinstance(found, Alert)
    assert found.subjects == ("net.0.bias",)
    (found,) = dead_units(SILENT, share=0.3)
    assert isinstance(found, Alert)
    assert found.subjects == ("net.0.bias", "net.2.bias")


def test_whole_layers_may_join_in_later() -> None:
    whole = replace(SILENT, layers=(replace(DEAD, silent=64),), largest=0.0, loss=0.0)
    for waits, share, severity in (
        (True, 64, Severity.INFO),
        (False, 64, Severity.WARNING),
        (True, 60, Severity.WARNING),
    ):
        (found,) = dead_units(replace(whole, layers=(replace(DEAD, silent=share),), waits=waits))
        assert isinstance(found, Alert)
        assert found.severity is severity


def test_a_layer_that_no_activation_can_have_silenced_gets_another_hint() -> None:
    (found,) = dead_units(replace(SILENT, layers=(replace(DEAD, silent=64, bare=True),)))
    assert isinstance(found, Alert)
    assert "wrong axis" in found.hint
    (found,) = dead_units(replace(SILENT, layers=(replace(DEAD, silent=64, bare=True), replace(DEAD, name="a"))))
    assert isinstance(found, Alert)
    assert "LeakyReLU" in found.hint


def test_where_nothing_has_a_gradient_no_activation_is_accused() -> None:
    for loss, expected in ((0.0, "exactly 0"), (0.6, "behind the last layer")):
        (found,) = dead_units(replace(SILENT, largest=0.0, loss=loss))
        assert isinstance(found, Alert)
        assert expected in found.hint
        assert "ReLU" not in found.hint
    (found,) = dead_units(replace(SILENT, largest=1e-9, loss=0.0))
    assert isinstance(found, Alert)
    assert "LeakyReLU" in found.hint


def test_gradients_that_shrink_to_nothing_are_not_taken_for_dead_units() -> None:
    (found,) = dead_units(replace(SILENT, faintest=1e-41))
    assert isinstance(found, Skip)
