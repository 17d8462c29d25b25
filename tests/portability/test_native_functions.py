"""The reader of ``native_functions.yaml``: small files of our own, and facts about the installed torch."""

import pytest
import torch
import yaml

from sanity_watchdog.portability.native_functions import (
    OperatorTable,
    Support,
    installed,
    installed_path,
    parse,
    plain,
    read,
)

SMALL = """
# a comment: with a colon
- func: everywhere(Tensor self) -> Tensor
  dispatch:
    CPU, CUDA: everywhere_kernel
    MPS: everywhere_mps
  tags: [core, pointwise]

- func: not_on_mps(Tensor self) -> Tensor
  dispatch:
    # NB: not a key
    CPU: kernel_cpu
    CUDA: kernel_cuda

- func: cpu_only(Tensor self) -> Tensor
  dispatch:
    CPU: kernel

- func: made_of_others(Tensor self) -> Tensor
  variants: function, method

- func: generic(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: generic
  autogen: generic.out, generic_copy

- func: shell(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: shell

- func: shell.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  dispatch:
    CPU, CUDA: shell_out

- func: work.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU, MPS: work_out

- func: work(Tensor self) -> Tensor
  structured_delegate: work.out

- func: sums.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  ufunc_inner_loop:
    Generic: sums (AllAndComplex)
  dispatch:
    MPS: sums_mps

- func: col2im(Tensor self) -> Tensor
  dispatch:
    CPU, CUDA: col2im

- func: nothing(Tensor self) -> Tensor
  dispatch: {}
"""
TABLE = OperatorTable(parse(SMALL), "small")


@pytest.mark.parametrize(
    ("operator", "backend", "support"),
    [
        ("everywhere", "MPS", Support.KERNEL),
        ("aten::everywhere.default", "CUDA", Support.KERNEL),
        ("not_on_mps", "MPS", Support.MISSING),
        ("not_on_mps", "CUDA", Support.KERNEL),
        ("cpu_only", "MPS", Support.CPU_CHOICE),
        ("made_of_others", "MPS", Support.GENERIC),
        ("generic", "MPS", Support.GENERIC),
        ("generic.out", "XPU", Support.GENERIC),
        ("generic_copy", "MPS", Support.GENERIC),
        ("shell", "MPS", Support.MISSING),
        ("shell", "CUDA", Support.GENERIC),
        ("work", "MPS", Support.KERNEL),
        ("work", "CUDA", Support.MISSING),
        ("sums.out", "CUDA", Support.KERNEL),
        ("col2im", "MPS", Support.ROUND_TRIP),
        ("nothing", "MPS", Support.CPU_CHOICE),
        ("never_heard_of", "MPS", Support.UNKNOWN),
    ],
)
def test_support(operator, backend, support):
    assert TABLE.support(operator, backend) is support


def test_a_complete_list_replaces_what_was_known_of_a_backend():
    table = TABLE.with_backend("MPS", ["aten::not_on_mps", "work.out"], "dispatcher")
    assert table.source == "dispatcher"
    assert table.support("not_on_mps", "MPS") is Support.KERNEL
    assert table.support("work", "MPS") is Support.KERNEL
    assert table.support("everywhere", "MPS") is Support.MISSING
    assert TABLE.support("everywhere", "MPS") is Support.KERNEL


@pytest.mark.parametrize("text", ["", "- name: x\n", "\x00\x01", "{}"])
def test_anything_else_is_refused(text, tmp_path):
    path = tmp_path / "native_functions.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="no operator declarations"):
        read(path, "broken")


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent.yaml", "absent")


def test_the_reader_agrees_with_a_yaml_parser_on_the_installed_file():
    entries = yaml.load(installed_path().read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    operators = installed().operators
    for entry in entries:
        operator = operators[entry["func"].split("(", 1)[0]]
        keys = {k for names in entry.get("dispatch", {}) for k in names.replace(",", " ").split()}
        assert keys <= operator.keys, operator
        assert operator.keys - keys <= {"CompositeImplicitAutograd", "CPU", "CUDA"}, operator
        assert operator.delegate == entry.get("structured_delegate", "")


@pytest.mark.parametrize(
    ("operator", "since"),
    [
        ("grid_sampler_3d", (2, 9)),
        ("_embedding_bag", (2, 10)),
        ("_unique", (2, 11)),
        ("linalg_qr.out", (2, 12)),
        ("_cdist_backward", (2, 13)),
        ("grid_sampler_2d_backward", (2, 13)),
        ("_linalg_eigh.eigenvalues", (2, 14)),
        ("linalg_matrix_exp", (2, 14)),
        ("_ctc_loss", (2, 14)),
        ("linalg_eig.out", (9, 9)),
        ("logspace", (9, 9)),
        ("_nested_tensor_from_mask_left_aligned", (9, 9)),
        ("_adaptive_avg_pool3d", (9, 9)),
    ],
)
def test_kernels_of_mps_by_version(operator, since):
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version > (2, 15) and since == (9, 9):
        return
    expected = Support.KERNEL if version >= since else Support.MISSING
    assert installed().support(operator, "MPS") is expected


def test_what_the_file_covers():
    table = installed()
    assert table.covers("MPS")
    assert table.covers("CUDA")
    assert not table.covers("PrivateUse1")
    assert table.support("add.Tensor", "CUDA") is Support.KERNEL
    assert table.support("mm", "MPS") is Support.KERNEL


def test_names():
    assert plain("aten::foo.default") == plain("aten.foo") == plain("foo") == "foo"
    assert plain("aten::foo.out") == "foo.out"
