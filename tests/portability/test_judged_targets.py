"""Who is asked about a target, and what happens when nobody answers."""

import sys

import pytest
import torch

from sanity_watchdog.evidence.portability import OperatorCall
from sanity_watchdog.portability import native_functions, targets, tpu
from sanity_watchdog.portability.judging import judged
from sanity_watchdog.portability.targets import NotJudgedError, table_for
from sanity_watchdog.portability.ways_out import SINCE, never_reached, way_out

WRITES = "import json, sys; json.dump({content}, open(sys.argv[1], 'w'))"


def answer(content):
    return WRITES.format(content=content)


@pytest.fixture(autouse=True)
def _forget():
    asked = tpu.registrations
    yield
    asked.cache_clear()


def test_registrations_come_from_a_child_process():
    script = answer({"version": "0.2.0", "operators": ["aten::mm", "aten::add.out"]})
    found = tpu.registrations(script=script)
    assert found.operators == ("aten::mm", "aten::add.out")
    assert found.source == "torch_tpu 0.2.0"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import time; time.sleep(60)", "did not answer within"),
        ("raise ImportError('no libtpu')", "ImportError: no libtpu"),
        ("import os; os._exit(3)", "no message"),
        ("pass", "not readable"),
        ("import sys; open(sys.argv[1], 'w').write('garbage')", "not readable"),
        ("import sys; open(sys.argv[1], 'wb').write(bytes(range(256)))", "not readable"),
        (answer([]), "not readable"),
        (answer({"version": "1", "operators": []}), "no list of operators"),
        (answer({"version": "1", "operators": [1, 2]}), "no list of operators"),
        (answer({"version": "1", "operators": "mm"}), "no list of operators"),
    ],
)
def test_a_child_that_hangs_or_talks_rubbish_is_a_reason(script, reason):
    with pytest.raises(tpu.NotAnsweredError, match=reason):
        tpu.registrations(script=script, timeout=5.0)


def test_an_interpreter_that_cannot_be_started_is_a_reason():
    with pytest.raises(tpu.NotAnsweredError, match="could not start"):
        tpu.registrations(python="/nowhere/python", script="pass")


def test_without_torch_tpu_nothing_is_started(monkeypatch):
    monkeypatch.setattr(tpu, "installed", lambda: False)
    monkeypatch.setattr(tpu.subprocess, "run", lambda *_, **__: pytest.fail("started a process"))
    with pytest.raises(NotJudgedError, match="torch_tpu is not installed"):
        table_for("tpu")


def test_a_tpu_is_judged_by_its_registrations(monkeypatch):
    monkeypatch.setattr(tpu, "registrations", lambda: tpu.Registrations(("aten::mm", "aten::add.out"), "torch_tpu 9"))
    seen = judged([OperatorCall("aten::mm"), OperatorCall("aten::smooth_l1_loss")], ["tpu"], {})
    (gap,) = seen.gaps
    assert (gap.call.name, gap.target, gap.missing) == ("aten::smooth_l1_loss", "tpu", True)
    assert gap.source.startswith("torch_tpu 9, torch ")
    assert "torch.where" in gap.way_out


def test_without_the_file_nothing_is_judged(monkeypatch, tmp_path):
    monkeypatch.setattr(native_functions, "installed_path", lambda: tmp_path / "absent.yaml")
    seen = judged([OperatorCall("aten::mm")], ["mps", "cuda"], {})
    assert not seen.targets
    assert [t for t, _ in seen.unjudged] == ["mps", "cuda"]
    assert "native_functions.yaml" in seen.unjudged[0][1]


def test_xla_has_no_table():
    with pytest.raises(NotJudgedError, match="xla"):
        table_for("xla")


def test_a_build_for_the_target_is_asked_itself(monkeypatch):
    monkeypatch.setattr(targets, "_built_for", lambda target: target == "mps")
    monkeypatch.setattr(targets, "_dispatcher", lambda key: ("aten::_pdist_forward",))
    table = table_for("mps")
    assert table.source.endswith("this build")
    assert table.support("_pdist_forward", "MPS") is native_functions.Support.KERNEL


def test_this_build_knows_its_own_kernels():
    names = targets._dispatcher("CPU")
    table = native_functions.installed().with_backend("CPU", names, "this build")
    assert table.support("mm", "CPU") is native_functions.Support.KERNEL
    assert table.support("add.Tensor", "CPU") is native_functions.Support.KERNEL


def test_other_libraries_are_named_and_not_judged():
    calls = [OperatorCall("torchvision::nms"), OperatorCall("prim::device"), OperatorCall("aten::mm")]
    seen = judged(calls, ["mps"], {})
    assert seen.foreign == ("torchvision",)
    assert not seen.gaps


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False), ("", False), (None, False)])
def test_the_fallback_variable(value, expected):
    environ = {} if value is None else {"PYTORCH_ENABLE_MPS_FALLBACK": value}
    assert judged([], ["mps"], {}, environ).fallback is expected


def test_ways_out():
    assert "enable_nested_tensor=False" in way_out("aten::_nested_tensor_from_mask_left_aligned", "mps")
    assert way_out("aten::_linalg_eigh", "mps") == "torch 2.14 has it"
    assert way_out("aten::_linalg_eigh", "xpu") == ""
    assert "torch.where" in way_out("aten::smooth_l1_loss_backward", "tpu")
    assert never_reached("aten::_transformer_encoder_layer_fwd", "mps")
    assert not never_reached("aten::_transformer_encoder_layer_fwd", "tpu")


def test_versions_in_hints_agree_with_the_installed_torch():
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    table = native_functions.installed()
    for name, since in SINCE["mps"].items():
        overloads = [n for n in table.operators if n.partition(".")[0] == name]
        has = any(table.support(n, "MPS") is native_functions.Support.KERNEL for n in overloads)
        assert overloads, name
        assert has == (version >= tuple(map(int, since.split(".")))), name


def test_nothing_foreign_is_imported():
    assert not {"torch_tpu", "torch_xla"} & set(sys.modules)
