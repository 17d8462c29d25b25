"""Runs of several processes, as the tests start them."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.project import ROOT


@dataclass(frozen=True)
class Outcome:
    """How a run of several processes ended.

    Attributes:
        statuses: exit status by rank: 0, 1 after an exception, the negative number of a signal, None where it hung.
        seen: what each rank that lived wrote down, see ``rank.written``.
        logs: what each rank printed.
    """

    folder: Path
    statuses: list[int | None]
    seen: dict[int, dict[str, Any]]
    logs: dict[int, str]

    def alerts(self, *codes: str, rank: int = 0) -> list[dict[str, Any]]:
        """Alerts of these codes (of all that are no INFO where none is given) as ``rank`` knows them."""
        found = self.seen[rank]["alerts"]
        return [a for a in found if a["code"] in codes or (not codes and a["severity"] != "info")]

    def assert_quiet(self, judged: int = 20) -> None:
        """No rank alerts, and each one was awake."""
        for rank, seen in self.seen.items():
            assert not seen["broken"], seen["broken"]
            assert self.alerts(rank=rank) == [], (rank, self.alerts(rank=rank))
            assert len(seen["judged"]) >= judged, seen["judged"]
            assert "WD601" in self.seen[0]["judged"] + list(self.seen[0]["skipped"])


class Ranks:
    """Starts runs; one server process serves them all."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.ranks.server"],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, case: str, folder: Path, world: int = 2, **options: Any) -> Outcome:
        """Train ``case`` of ``tests.ranks.cases`` on ``world`` processes that somebody else has started."""
        folder.mkdir(parents=True, exist_ok=True)
        request = {"case": case, "folder": str(folder), "world": world, "port": free_port(), "options": options}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return outcome(folder, json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        """No more runs."""
        self._server.communicate()


@contextmanager
def serving() -> Iterator[Ranks]:
    """A server for as long as the scope lasts."""
    ranks = Ranks()
    try:
        yield ranks
    finally:
        ranks.close()


def launch(launcher: str, case: str, folder: Path, world: int = 2, **options: Any) -> Outcome:
    """Train in a program of its own whose ranks Lightning starts.

    Args:
        launcher: ``ddp`` (subprocesses), ``ddp_spawn`` or ``ddp_fork``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.ranks.rank", launcher, case, str(folder), str(world), json.dumps(options)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200, check=False
    )
    (folder / "rank0.log").write_text(done.stderr)
    return outcome(folder, [done.returncode])


def outcome(folder: Path, statuses: list[int | None]) -> Outcome:
    """What the ranks left in ``folder``."""
    seen = {int(p.stem[4:]): json.loads(p.read_text()) for p in sorted(folder.glob("seen*.json"))}
    logs = {int(p.stem[4:]): p.read_text(errors="replace") for p in sorted(folder.glob("rank*.log"))}
    return Outcome(folder, statuses, seen, logs)


def environment() -> dict[str, str]:
    """This process's, with this tree first on the path and without an earlier run's ports and ranks."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "watchdog"), os.environ.get("PYTHONPATH", "")])
    kept = {k: v for k, v in os.environ.items() if k not in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "WORLD_SIZE")}
    kept = {k: v for k, v in kept.items() if k not in ("RANK", "LOCAL_RANK", "PL_GLOBAL_SEED")}
    return {**kept, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port())}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
