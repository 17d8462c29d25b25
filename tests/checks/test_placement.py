import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks.judge import judge
from sanity_watchdog.checks.placement import device_mismatch, unregistered_tensor
from sanity_watchdog.evidence.runtime import (
    DeviceClash,
    LooseAttributes,
    LoosePlacement,
    NamedTensor,
    Placement,
    Stranger,
)


def tensor(name, device="cpu", shape=(20,)):
    return NamedTensor(name, "float32", device, shape)


MASK, SCALE = tensor("net.mask"), tensor("net.scale", shape=(1,))
REFUSED = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
MET = Stranger("net.mask", "train.py:30", "mul", attribute=True)
ARANGE = Stranger("arange", "train.py:41", "add", born="train.py:40")

FIRING = [
    (device_mismatch, Placement(root="cuda:0", strays=(tensor("head.weight"),), total=8)),
    (device_mismatch, Placement(root="cpu", strays=(tensor("a.weight", "meta"), tensor("a.bias", "meta")), total=4)),
    (
        device_mismatch,
        DeviceClash(
            error=REFUSED,
            module="net",
            where="train.py:30",
            tensors=(NamedTensor("batch[0]", "float32", "cuda:0", (8, 20), "batch"),),
            loose=(tensor("net.shift", "cuda:0"), MASK, tensor("other.mask")),
        ),
    ),
    (device_mismatch, DeviceClash(error=REFUSED)),
    (device_mismatch, LoosePlacement(targets=("mps",), strangers=(ARANGE,))),
    (unregistered_tensor, LooseAttributes(targets=("cuda",), kept=(SCALE, MASK), met=(MET,), followed=True)),
    (unregistered_tensor, LooseAttributes(targets=("cuda",), kept=(MASK,))),
    (unregistered_tensor, LooseAttributes(kept=(MASK, SCALE))),
]
QUIET = [
    (device_mismatch, Placement(root="cuda:0", total=8)),
    (device_mismatch, LoosePlacement(targets=("mps",))),
    (unregistered_tensor, LooseAttributes(targets=("cuda",))),
]


@pytest.mark.parametrize(("check", "seen"), FIRING, ids=lambda v: f"fires-{getattr(v, 'code', '')}")
def test_fires(check, seen):
    assert {a.code for a in judge(seen, (check,)).alerts} == {check.code}


@pytest.mark.parametrize(("check", "seen"), QUIET, ids=lambda v: f"quiet-{getattr(v, 'code', '')}")
def test_quiet(check, seen):
    judgement = judge(seen, (check,))
    assert not judgement.alerts
    assert judgement.judged == {check.code}


@pytest.mark.parametrize(
    ("seen", "severities"),
    [
        (LooseAttributes(kept=(MASK,)), [Severity.INFO]),
        (LooseAttributes(targets=("mps",), kept=(MASK,)), [Severity.WARNING]),
        (LooseAttributes(targets=("mps",), kept=(MASK,), followed=True), [Severity.INFO]),
        (
            LooseAttributes(targets=("mps",), kept=(MASK, SCALE), met=(MET,), followed=True),
            [Severity.WARNING, Severity.INFO],
        ),
    ],
    ids=["latent", "not followed", "unused in the step", "used in the step"],
)
def test_an_attribute_is_an_alarm_only_where_it_matters(seen, severities):
    assert [a.severity for a in judge(seen, (unregistered_tensor,)).alerts] == severities


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("net.mask", 'register it: self.register_buffer("mask", …)'),
        ("slow['net.0.weight']", "register each tensor of slow: self.register_buffer(name, …)"),
        ("net.kept[0][1]", "register each tensor of kept: self.register_buffer(name, …)"),
    ],
)
def test_the_hint_names_the_attribute(name, hint):
    (alert,) = judge(LooseAttributes(kept=(tensor(name),)), (unregistered_tensor,)).alerts
    assert alert.hint == hint


def test_a_parameter_without_values_is_an_error_and_one_elsewhere_a_warning():
    elsewhere, empty = (judge(seen, (check,)).alerts[0] for check, seen in FIRING[:2])
    assert (elsewhere.severity, empty.severity) == (Severity.WARNING, Severity.ERROR)


def test_the_attribute_is_blamed_for_a_clash():
    (alert,) = judge(FIRING[2][1], (device_mismatch,)).alerts
    assert alert.subjects[0] == "net.mask"
    assert alert.message == "net.mask is on cpu, the others on cuda:0"
    assert "register_buffer" in alert.hint


def test_without_an_attribute_the_odd_tensor_is_blamed():
    weight = NamedTensor("net.0.weight", "float32", "cuda:0", (4, 4), "registered")
    seen = DeviceClash(error=REFUSED, module="net.0", tensors=(tensor("input"), tensor("mask"), weight))
    (alert,) = judge(seen, (device_mismatch,)).alerts
    assert alert.message == "input is on cpu, the others on cuda:0"
    assert alert.subjects == ("input", "mask", "net.0")
