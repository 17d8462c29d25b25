"""``sanity-watchdog portability`` and ``sanity-watchdog precision``, as a user calls them."""

import json
import sys

import pytest
import torch

from sanity_watchdog.cli import main
from sanity_watchdog.portability.placement import OLDEST
from sanity_watchdog.portability.precision import release

MODEL = """
import lightning.pytorch as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(L.LightningModule):
    def __init__(self, distance=False):
        super().__init__()
        self.net, self.distance = nn.Linear(8, 3), distance

    def training_step(self, batch, batch_idx):
        print("noise of the user's own")
        x, y = batch
        far = F.pdist(self.net(x)).mean() if self.distance else 0.0
        return F.cross_entropy(self.net(x), y) - 0.01 * far

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def batch():
    return torch.randn(8, 8), torch.arange(8) % 3


def fine():
    return Model(), batch()


def with_loader():
    x, y = batch()
    return Model(), DataLoader(TensorDataset(x, y), 4)


def distant():
    return Model(distance=True), batch()


def unfit():
    return Model(), torch.randn(8, 8)


def needy(size, depth=3):
    return fine()


def broken():
    raise RuntimeError("no data\\nhere")


def nothing():
    return None


def plain():
    return nn.Linear(2, 2), batch()


number = 3
"""


@pytest.fixture(autouse=True)
def _model(tmp_path, monkeypatch):
    (tmp_path / "factories.py").write_text(MODEL)
    (tmp_path / "unimportable.py").write_text("import no_such_package_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    for name in ("factories", "unimportable"):
        sys.modules.pop(name, None)


def call(capsys, *argv):
    try:
        status = main([str(a) for a in argv])
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("factory", ["fine", "with_loader"])
def test_a_portable_model(factory, capsys, tmp_path):
    status, out, _ = call(capsys, "portability", f"factories:{factory}", "--targets", "mps", "cuda")
    assert status == 0, out
    assert "portability to mps, cuda: nothing to look at" in out
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix) == ["factories.py", "unimportable.py"]


def test_a_missing_operator(capsys):
    status, out, _ = call(capsys, "portability", "factories:distant", "--targets", "mps")
    assert status == 1
    assert "WD406 missing-operator  ERROR" in out
    assert "factories.py:" in out


def test_as_data(capsys):
    status, out, _ = call(capsys, "portability", "factories:distant", "--targets", "mps", "tpu", "--format", "json")
    found = json.loads(out)
    assert status == 1
    assert found["alerts"][0]["code"] == "WD406"
    assert "torch_tpu" in found["skipped"].get("WD407", "torch_tpu")
    assert found["error"] == ""


def test_precision_is_that_of_the_trainer(capsys):
    status, out, _ = call(capsys, "portability", "factories:fine", "--targets", "mps", "--precision", "64-true")
    assert status == 1
    assert "64-true fails on mps" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["factories:fine", "--targets", "gameboy"], "unknown target 'gameboy'; valid are cpu, cuda, mps"),
        (["factories", "--targets", "mps"], "not of the form module:factory"),
        (["absent:fine", "--targets", "mps"], "cannot import 'absent': ModuleNotFoundError"),
        (["unimportable:fine", "--targets", "mps"], "no_such_package_at_all"),
        (["factories:absent", "--targets", "mps"], "has no 'absent'"),
        (["factories:number", "--targets", "mps"], "not callable"),
        (["factories:needy", "--targets", "mps"], "needs arguments (size)"),
        (["factories:broken", "--targets", "mps"], "raised RuntimeError: no data"),
        (["factories:nothing", "--targets", "mps"], "must return a LightningModule and a batch or loader"),
        (["factories:plain", "--targets", "mps"], "is no LightningModule"),
        (["factories:unfit", "--targets", "mps"], "the trial ended with ValueError: too many values"),
        (["factories:fine", "--targets", "mps", "--precision", "7-true"], "7-true"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message, capsys):
    status, _, err = call(capsys, "portability", *arguments)
    assert status == 2
    assert message in err
    assert err.count("\n") == 1, err


@pytest.mark.parametrize("arguments", [[], ["factories:fine"], ["factories:fine", "--targets"]])
def test_missing_arguments_are_explained(arguments, capsys):
    status, _, err = call(capsys, "portability", *arguments)
    assert status == 2
    assert "usage: sanity-watchdog portability" in err


def test_the_precision_table(capsys):
    status, out, _ = call(capsys, "precision")
    assert status == 0
    assert "16-mixed" in out
    assert "becomes bf16-mixed, without a loss scaler" in out


def test_the_precision_table_of_another_torch(capsys):
    status, out, _ = call(capsys, "precision", "--torch", "2.7", "--targets", "mps", "--format", "json")
    rows = {r["precision"]: r for r in json.loads(out)["rows"]}
    assert status == 0
    assert rows["16-mixed"]["outcome"] == "fails"
    assert rows["32-true"]["outcome"] == "works"


@pytest.mark.parametrize("arguments", [["--torch", "nightly"], ["--targets", "gameboy"]])
def test_bad_arguments_of_precision(arguments, capsys):
    assert call(capsys, "precision", *arguments)[0] == 2


def test_placement_on_a_device_in_name_only(capsys):
    status, out, _ = call(capsys, "portability", "factories:fine", "--targets", "mps", "--placement")
    assert status == 0, out
    able = release(torch.__version__) >= OLDEST
    assert f"placement: {'every tensor follows the model' if able else 'could not check: needs torch'}" in out
    status, out, _ = call(
        capsys, "portability", "factories:distant", "--targets", "cuda", "--placement", "--format", "json"
    )
    assert json.loads(out)["placement"]["status"] in ("fine", "unchecked")


def test_another_version_of_torch(capsys):
    status, out, _ = call(capsys, "portability", "factories:distant", "--targets", "mps", "--torch", "2.8")
    assert status == 1
    assert "torch 2.8, by version table" in out
    status, _, err = call(capsys, "portability", "factories:fine", "--targets", "mps", "--torch", "9.9")
    assert status == 2
    assert "no table of operators for torch 9.9" in err
