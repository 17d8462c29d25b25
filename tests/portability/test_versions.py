"""What MPS lacks in other versions of torch."""

import pytest
import torch

from sanity_watchdog.evidence.portability import OperatorCall
from sanity_watchdog.portability.judging import judged
from sanity_watchdog.portability.native_functions import OperatorTable, Support, installed, parse
from sanity_watchdog.portability.precision import release
from sanity_watchdog.portability.targets import judged_torch, judging_for
from sanity_watchdog.portability.versions import VersionTable, known, main, ranges

HAS = "- func: {name}(Tensor self) -> Tensor\n  dispatch:\n    CPU, CUDA, MPS: kernel\n"
LACKS = "- func: {name}(Tensor self) -> Tensor\n  dispatch:\n    CPU, CUDA: kernel\n"


def table(*, has=(), lacks=()):
    return OperatorTable(parse("".join([HAS.format(name=n) for n in has] + [LACKS.format(name=n) for n in lacks])), "")


def test_ranges():
    tables = {
        "2.6": table(lacks=["late", "never", "col2im"], has=["always"]),
        "2.7": table(lacks=["late", "never", "newcomer"], has=["always", "col2im"]),
        "2.8": table(lacks=["never"], has=["always", "late", "newcomer", "col2im"]),
    }
    assert list(ranges(tables)) == [
        "# torch 2.6 to 2.8",
        "col2im round-trip 2.6 2.6",
        "late missing 2.6 2.7",
        "never missing 2.6 2.8",
        "newcomer missing 2.7 2.7",
    ]


def test_a_kernel_that_comes_and_goes_is_refused():
    tables = {"2.6": table(lacks=["a"]), "2.7": table(has=["a"]), "2.8": table(lacks=["a"])}
    with pytest.raises(ValueError, match="not missing in one range"):
        list(ranges(tables))


def test_the_command_that_makes_it(tmp_path, capsys):
    (tmp_path / "a").write_text(LACKS.format(name="a"))
    assert main([f"2.6={tmp_path / 'a'}", f"2.7={tmp_path / 'a'}"]) == 0
    assert capsys.readouterr().out == "# torch 2.6 to 2.7\na missing 2.6 2.7\n"


@pytest.mark.parametrize(
    ("operator", "last"),
    [("isin.Tensor_Scalar", 7), ("_embedding_bag", 9), ("aten::linalg_qr", 11), ("_cdist_backward", 12)],
)
def test_facts(operator, last):
    assert VersionTable(f"2.{last}").support(operator, "MPS") is Support.MISSING
    assert VersionTable(f"2.{last + 1}.1+cpu").support(operator, "MPS") is Support.UNKNOWN


def test_the_table_agrees_with_the_installed_torch():
    version = release(torch.__version__)
    if not known()[0] <= version <= known()[1]:
        pytest.skip(f"the table ends with {known()[1]}")
    there, here = VersionTable(torch.__version__), installed()
    for name in here.operators:
        lacking = here.support(name, "MPS")
        expected = lacking if lacking in (Support.MISSING, Support.ROUND_TRIP) else Support.UNKNOWN
        assert there.support(name, "MPS") is expected, name


@pytest.mark.parametrize("version", ["2.5", "9.9", "nightly"])
def test_a_version_beyond_the_table_is_refused(version):
    with pytest.raises(ValueError, match=r"reaches from 2\.6 to 2\.\d+"), judging_for(version):
        pass


def test_judging_for_another_version():
    calls = [OperatorCall("aten::linalg_qr"), OperatorCall("aten::mm")]
    with judging_for("2.11"):
        seen = judged(calls, ["mps", "cuda"], {})
    assert [g.call.name for g in seen.gaps] == ["aten::linalg_qr"]
    assert seen.targets == (("mps", "torch 2.11, by version table"),)
    assert [t for t, _ in seen.unjudged] == ["cuda"]
    assert judged(calls, ["cuda"], {}).targets


def test_the_version_judged_for():
    assert judged_torch() == torch.__version__
    with judging_for("2.7"):
        assert judged_torch() == "2.7"
