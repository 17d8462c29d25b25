"""One training step on a second device that does not exist: run in a process of its own, see ``placement.py``.

Torch's private backend gets a name and a Python device guard, and under ``FakeTensorMode`` forward, backward and
optimizer run on it with shapes, formats and devices but without values: whatever mixes devices raises at its line. This
is process-wide and cannot be taken back, hence the process.
"""

import copy
import json
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

NAME = "elsewhere"
NEEDS_VALUES = ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode")


def main(source: str, target: str) -> None:
    """Read a pickled ``(module, batch)`` or the name of a factory from ``source``; write the verdict to ``target``."""
    Path(target).write_text(json.dumps(_verdict(Path(source).read_bytes())), encoding="utf-8")


def _verdict(given: bytes) -> dict[str, str]:
    try:
        made = pickle.loads(given)
        if isinstance(made, str):
            from .trial import made_by

            module, loader, _ = made_by(made)
            made = module, next(iter(loader))
    except Exception as error:  # noqa: BLE001
        return {"status": "unchecked", "error": f"the model could not be read back: {_line(error)}", "where": ""}
    try:
        _step(*made)
    except Exception as error:  # noqa: BLE001
        return _judged(error)
    return {"status": "fine", "error": "", "where": ""}


def _judged(error: BaseException) -> dict[str, str]:
    from ..observe.scene import DEVICE
    from ..observe.site import line_of, origin

    steps = list(traceback.walk_tb(error.__traceback__))
    where = next((line_of(f, n) for f, n in reversed(steps) if origin(f) == 0), "")
    mixed = "two different devices" in str(error) or DEVICE.search(str(error)) is not None
    status = "fault" if mixed and type(error).__name__ not in NEEDS_VALUES else "unchecked"
    reason = "needs a value on the host: " if type(error).__name__ in NEEDS_VALUES else ""
    return {"status": status, "error": reason + _line(error), "where": where}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:200]


def _step(module: Any, batch: Any) -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map_only
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as set_up

    set_up(rename=NAME)
    device = torch.device(NAME)
    mode = FakeTensorMode(allow_non_fake_inputs=False)

    def there(tensor: Any) -> Any:
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

    moved = _moved(module, mode, there)
    batch = tree_map_only(torch.Tensor, there, batch)
    for name in ("log", "log_dict"):
        if hasattr(moved, name):
            object.__setattr__(moved, name, lambda *_, **__: None)
    with mode:
        result = moved.training_step(batch, 0)
        loss = result["loss"] if isinstance(result, dict) else result
        if loss is None:
            return
        loss.backward()
        torch.optim.AdamW(p for p in moved.parameters() if p.requires_grad).step()


def _moved(module: Any, mode: Any, there: Any) -> Any:
    """A copy as ``.to(device)`` leaves it: registered tensors on the device, all others on the CPU."""
    import torch

    from ..observe.placement import loose_tensors

    memo: dict[int, Any] = {}
    with torch.no_grad():
        for owner in module.modules():
            for registered in (*owner._parameters.values(), *owner._buffers.values()):
                if registered is not None and id(registered) not in memo:
                    fake = there(registered)
                    is_parameter = isinstance(registered, torch.nn.Parameter)
                    memo[id(registered)] = torch.nn.Parameter(fake, registered.requires_grad) if is_parameter else fake
        for loose in loose_tensors(module):
            memo[id(loose.tensor)] = mode.from_tensor(loose.tensor)
    return copy.deepcopy(module, memo)


if __name__ == "__main__":
    main(*sys.argv[1:])
