"""Would a training step run on another device? Tried without one, in a child process."""

import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT = 120.0
"""Seconds for the child, most of them for importing torch."""
OLDEST = (2, 10)
"""First torch whose private backend can be driven from Python."""


@dataclass(frozen=True)
class PlacementReport:
    """What a step on another device came to.

    Attributes:
        status: ``fine``; ``fault`` where tensors of different devices met; ``unchecked`` where it could not be tried
            to its end, which says nothing about the model.
        error: first line of what was raised, or why it was not tried.
        where: the user's ``file:line``.
    """

    status: str
    error: str = ""
    where: str = ""

    def __str__(self) -> str:
        told = {"fine": "every tensor follows the model", "unchecked": "could not check"}.get(self.status, self.status)
        return told + (f": {self.error}" if self.error else "") + (f" at {self.where}" if self.where else "")


def check_placement(module: Any, batch: Any = None, *, timeout: float = TIMEOUT) -> PlacementReport:
    """Run one training step (forward, backward, AdamW) on a device that exists in name only.

    Nothing is computed and nothing of the caller's is touched: a copy of the module runs in a child process with fake
    tensors. Tensors in plain attributes, tensors made without ``device=``, a hard-coded ``.cpu()`` are found at their
    line. A step that needs values on the host (``.item()``, a boolean index) cannot be tried further than that.

    Args:
        module: a LightningModule that pickles, or ``"module:factory"`` where the factory returns one and a batch.
        batch: what ``training_step`` gets; not with a factory.
        timeout: seconds.
    """
    import torch

    from .precision import release

    if release(torch.__version__) < OLDEST:
        return PlacementReport("unchecked", "needs torch >= 2.10")
    try:
        given = pickle.dumps(module if isinstance(module, str) else (module, batch))
    except Exception as error:  # noqa: BLE001
        return PlacementReport("unchecked", f"the model does not pickle ({error}): give 'module:factory'"[:200])
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "given", Path(folder) / "verdict.json"
        source.write_bytes(given)
        path = os.pathsep.join(p for p in (*sys.path, os.environ.get("PYTHONPATH", "")) if p)
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": path}
        command = [sys.executable, "-m", f"{__package__}.second_device", str(source), str(target)]
        try:
            child = subprocess.run(
                command, env=environment, timeout=timeout, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            return PlacementReport(**json.loads(target.read_text(encoding="utf-8")))
        except subprocess.TimeoutExpired:
            return PlacementReport("unchecked", f"no verdict within {timeout:g} s")
        except (OSError, ValueError, TypeError):
            last = (child.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            return PlacementReport("unchecked", f"the child process ended with {child.returncode}: {last}"[:200])
