"""Which operators an installed ``torch_tpu`` registers, asked in a child process.

Importing torch_tpu claims torch's private backend, replaces ``torch.compile``, and the first tensor made on its device
waits minutes for a metadata server where there is no TPU. So it is imported in a process of its own, which makes no
tensor and only writes down the registrations.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 120.0
"""Seconds; the import takes about ten."""
SCRIPT = """
import json, sys
from importlib.metadata import version
import torch, torch_tpu
names = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
with open(sys.argv[1], "w") as file:
    json.dump({"version": version("torch_tpu"), "operators": [n for n in names if n.startswith("aten::")]}, file)
"""


@dataclass(frozen=True)
class Registrations:
    """Operators with a TPU kernel, and the version that says so."""

    operators: tuple[str, ...]
    source: str


class NotAnsweredError(Exception):
    """Why nobody could be asked."""


def installed() -> bool:
    """Is torch_tpu installed? It is not imported to find out."""
    return importlib.util.find_spec("torch_tpu") is not None


@functools.cache
def registrations(python: str = sys.executable, script: str = SCRIPT, timeout: float = TIMEOUT) -> Registrations:
    """Ask once per process.

    Raises:
        NotAnsweredError: torch_tpu is not installed, or the child failed, hung or wrote something else.
    """
    if script is SCRIPT and not installed():
        raise NotAnsweredError("torch_tpu is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "registrations.json"
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        try:
            child = subprocess.run(
                [python, "-c", script, str(path)],
                env=environment,
                timeout=timeout,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotAnsweredError(f"torch_tpu did not answer within {timeout:g} s") from None
        except OSError as error:
            raise NotAnsweredError(f"could not start {python}: {error}") from None
        if child.returncode:
            last = (child.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            raise NotAnsweredError(f"torch_tpu could not be imported: {last[:120]}")
        return _read(path)


def _read(path: Path) -> Registrations:
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
        names, version = answer["operators"], answer["version"]
        if not (isinstance(names, list) and names and all(isinstance(n, str) for n in names)):
            raise ValueError("no list of operators")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotAnsweredError(f"torch_tpu's answer is not readable: {error}") from None
    return Registrations(tuple(names), f"torch_tpu {version}")
