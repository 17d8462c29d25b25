"""Forks the ranks of one run after another: torch and Lightning are imported once for all of them.

Reads one request per line, answers with each rank's exit status (negative for a signal, null where it had to be ended).
"""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import tests.corpus  # noqa: F401 (once for all ranks)
from tests.ranks.rank import run_rank

PATIENCE = 100.0
"""Seconds that a run may take."""


def child(rank: int, request: dict[str, Any]) -> None:
    """One rank; never returns."""
    folder = Path(request["folder"])
    world, port = str(request["world"]), str(request["port"])
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ |= {"GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "tests"}
    log = os.open(folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    status = 1
    try:
        run_rank(request["case"], folder, request["world"], request["options"])
        status = 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def serve(request: dict[str, Any]) -> list[int | None]:
    """Exit status of each rank."""
    pids = []
    for rank in range(request["world"]):
        pid = os.fork()
        if not pid:
            child(rank, request)
        pids.append(pid)
    statuses: dict[int, int | None] = {}
    until = time.monotonic() + PATIENCE
    while len(statuses) < len(pids):
        for pid in (p for p in pids if p not in statuses):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                statuses[pid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                statuses[pid] = None
        time.sleep(0.02)
    return [statuses[pid] for pid in pids]


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)
