"""What a user installs: the wheel, in an environment of its own, beside PyPI's file-system ``watchdog``."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FIT = """
import torch, watchdog.events, sanity_watchdog
from torch.utils.data import DataLoader, TensorDataset
import lightning as L
from sanity_watchdog import SanityWatchdog

assert "torch" in __import__("sys").modules
assert sanity_watchdog.__file__.startswith({site!r}), sanity_watchdog.__file__
assert "FileSystemEvent" in dir(watchdog.events)

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(20, 10)
    def training_step(self, batch, i):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

dog = SanityWatchdog(fail_on=None)
data = TensorDataset(torch.randn(64, 20), torch.randint(0, 10, (64,)))
L.Trainer(accelerator="cpu", max_steps=4, logger=False, enable_checkpointing=False, callbacks=[dog]).fit(
    Net(), DataLoader(data, 16))
assert dog.verdict == "pass", dog.alerts
assert len(dog.summary.judged) > 5
print("FIT", dog.verdict)
"""


def run(*command: object, cwd: Path = ROOT) -> str:
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=280, cwd=cwd, env=environ, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    return out


def test_there_is_never_an_import_package_named_watchdog() -> None:
    assert not (ROOT / "watchdog" / "__init__.py").exists()
    assert (ROOT / "watchdog" / "sanity_watchdog" / "__init__.py").exists()


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"sanity_watchdog"}
    shipped = {n.removeprefix("sanity_watchdog/") for n in names if n.startswith("sanity_watchdog/")}
    package = ROOT / "watchdog" / "sanity_watchdog"
    wanted = {str(p.relative_to(package)) for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert shipped == wanted
    assert "py.typed" in shipped


def test_the_sdist_holds_what_is_needed_to_build_test_and_release(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [Path(*Path(member.name).parts[1:]) for member in archive.getmembers() if member.isfile()]
    folders = {"watchdog", "tests", "examples", ".github"}
    files = {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", ".gitignore", "PKG-INFO"}
    assert {name.parts[0] for name in names} == folders | files
    wanted = {
        p.relative_to(ROOT)
        for folder in folders
        for p in (ROOT / folder).rglob("*")
        if p.suffix in (".py", ".md", ".js", ".yml", ".json", ".txt", ".ipynb", ".yaml")
        and "lightning_logs" not in p.parts
    }
    assert wanted <= set(names)
    assert not [name for name in names if name.suffix in (".pyc", ".ckpt", ".jsonl") or "__pycache__" in name.parts]


def test_a_fit_in_a_fresh_environment_beside_the_other_watchdog(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")  # torch and Lightning are not built twice
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", *built.glob("*.whl"), "watchdog")
    (tmp_path / "fit.py").write_text(FIT.format(site=str(site)))
    assert "FIT pass" in run(python, "fit.py", cwd=tmp_path)
    assert "WD101" in run(tmp_path / "env" / "bin" / "sanity-watchdog", "checks", cwd=tmp_path)


def test_reports_need_nothing_but_the_wheel(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    record = tmp_path / "watchdog.jsonl"
    record.write_text('{"v":1,"type":"summary","verdict":"pass","judged":["WD301"]}\n')
    program = (
        f"import sys; sys.path.append({str(tmp_path / 'site')!r}); from sanity_watchdog.cli import main; main({{}})"
    )

    def alone(*arguments: str) -> str:
        return run(sys.executable, "-S", "-I", "-c", program.format(list(arguments)), cwd=tmp_path)

    assert "1 run: 1 pass" in alone("report", str(record))
    assert "WD301  zeroed-parameter" in alone("checks")
    assert "What it sees" in alone("explain", "WD301")
