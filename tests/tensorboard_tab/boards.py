"""Real TensorBoard processes on 127.0.0.1."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "watchdog"
WAIT_S = 60


@dataclass
class Board:
    """A running TensorBoard: its address without a slash, its log folder, and the file that holds what it said."""

    url: str
    logs: Path
    said: Path

    def get(self, route: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/data/{route}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            return json.load(answer)

    def tab(self, route: str, **query: str) -> Any:
        return self.get(f"plugin/watchdog/{route}", **query)

    def wait_for(self, met: Callable[["Board"], Any]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not met(self):
            assert time.monotonic() < deadline, self.said.read_text()
            time.sleep(0.2)


@contextmanager
def serve(logs: Path, *arguments: str, path: tuple[Path, ...] = (), prefix: str = "") -> Iterator[Board]:
    """TensorBoard over ``logs``. ``path``: folders from which it imports first."""
    said = logs.with_name(f"{logs.name}-{abs(hash((arguments, path)))}.txt")
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logs), "--host", "127.0.0.1", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, SOURCE)))}
    with said.open("w") as file:
        process = subprocess.Popen(
            [*command, "--reload_interval=1", *([f"--path_prefix={prefix}"] if prefix else []), *arguments],
            stderr=file,
            stdout=file,
            env=environment,
            cwd=logs.parent,
        )
    try:
        deadline = time.monotonic() + WAIT_S
        while "http://127.0.0.1:" not in (words := said.read_text()):
            assert process.poll() is None, words
            assert time.monotonic() < deadline, words
            time.sleep(0.1)
        port = words.partition("http://127.0.0.1:")[2].split("/")[0].split()[0]
        yield Board(f"http://127.0.0.1:{port}{prefix}", logs, said)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def without_torch(folder: Path) -> Path:
    """A folder from which torch and Lightning cannot be imported."""
    for name in ("torch", "lightning", "pytorch_lightning"):
        folder.joinpath(name).mkdir(parents=True)
        folder.joinpath(name, "__init__.py").write_text(f"raise ImportError('{name} is not here')")
    return folder


def serves(*runs: str) -> Callable[[Board], bool]:
    """Does the tab list these runs, each with all that its sink wrote before?"""

    def met(board: Board) -> bool:
        try:
            there = {r["run"].removesuffix("/watchdog"): r for r in board.tab("runs")["runs"]}
        except urllib.error.HTTPError:
            return False
        return all(r in there and (there[r]["over"] or r == "going") for r in runs)

    return met
