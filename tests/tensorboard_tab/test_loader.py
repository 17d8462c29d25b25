"""Nothing of ours keeps TensorBoard from starting."""

import shutil
import subprocess
import sys
from argparse import Namespace
from importlib import metadata
from pathlib import Path

import pytest

from sanity_watchdog.tensorboard_tab.loader import VECTORS, WatchdogLoader

from . import logs
from .boards import SOURCE, serve, serves, without_torch


def test_tensorboard_finds_the_loader() -> None:
    (found,) = (e for e in metadata.entry_points(group="tensorboard_plugins") if e.name == "sanity_watchdog")
    assert found.load() is WatchdogLoader


def test_every_record_is_kept_unless_the_user_says_otherwise() -> None:
    flags = Namespace(samples_per_plugin={"text": 7})
    WatchdogLoader().fix_flags(flags)
    assert flags.samples_per_plugin == {"text": 7, "watchdog": 0, "watchdog_layers": VECTORS}
    flags = Namespace(samples_per_plugin={"watchdog": 3, "watchdog_layers": 4})
    WatchdogLoader().fix_flags(flags)
    assert flags.samples_per_plugin == {"watchdog": 3, "watchdog_layers": 4}


@pytest.mark.parametrize("flags", [Namespace(), Namespace(samples_per_plugin=None), Namespace(samples_per_plugin="x")])
def test_flags_of_another_version_do_no_harm(flags: Namespace) -> None:
    WatchdogLoader().fix_flags(flags)


def test_what_fails_is_no_tab() -> None:
    assert WatchdogLoader().load(object()) is None


def test_the_loader_imports_neither_torch_nor_the_checks() -> None:
    code = (
        "import sys\nimport sanity_watchdog.tensorboard_tab.loader\n"
        "print(*(n for n in sys.modules if n.split('.')[0] in ('torch', 'lightning', 'numpy')"
        " or n.startswith('sanity_watchdog.checks')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_tensorboard_starts_without_torch(tmp_path: Path) -> None:
    logs.good(tmp_path / "logs" / "good")
    with serve(tmp_path / "logs", path=(without_torch(tmp_path / "none"),)) as board:
        board.wait_for(serves("good"))
        assert board.get("plugins_listing")["watchdog"]["tab_name"] == "Watchdog"
        assert board.tab("page", code="WD101")["name"] == "initial-loss-off"
        assert "Traceback" not in board.said.read_text()


@pytest.mark.parametrize("fault", ["raise RuntimeError('no')", "not python", "import nowhere"])
def test_tensorboard_starts_when_the_tab_raises(tmp_path: Path, fault: str) -> None:
    broken = shutil.copytree(SOURCE / "sanity_watchdog", tmp_path / "broken" / "sanity_watchdog")
    broken.joinpath("tensorboard_tab", "plugin.py").write_text(fault)
    logs.good(tmp_path / "logs" / "good")
    with serve(tmp_path / "logs", path=(broken.parent,)) as board:
        board.wait_for(lambda b: b.get("plugin/text/tags"))
        assert "watchdog" not in board.get("plugins_listing")
        assert "the Watchdog tab is off" in board.said.read_text()
