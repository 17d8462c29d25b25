"""Precision asked and got, devices, and the scene of an operation that refuses its tensors."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from ..evidence.readings import Vital
from ..evidence.runtime import DeviceClash, DtypeClash, NamedTensor, Placement, PrecisionUse, StepFormats
from .batches import elements
from .inside import Inside
from .intercept import anything_compiled
from .moment import Moment
from .names import plain_name
from .observer import Observer
from .placement import loose_tensors
from .run import Run
from .scene import DEVICE, DTYPE, Scene, named, short

SHARDED = ("FSDP", "DeepSpeed", "ModelParallel", "XLA")
"""Strategies that place a model's tensors themselves, named by a part of their class name."""


class Runtime(Observer):
    """Watches the first step's number formats, and explains a clash of formats or devices when the run dies of it."""

    codes = ("WD401", "WD402", "WD403")

    def __init__(self) -> None:
        self._forward: set[str] = set()
        self._inside = Inside()
        self._told = False

    def start(self, run: Run, at: Moment) -> None:
        precision = run.precision if run.asked in ("", run.precision) else f"{run.precision} (asked {run.asked})"
        at.emit(Vital(key="runtime", text=f"{precision} on {run.accelerator}", **at.tags()))
        at.emit(placement(run, at))

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        if self._told or at.stage != "train" or anything_compiled(at.run.module):
            return ()
        return (_autocast_in_force(at.run.accelerator, self._forward, self._inside),)

    def output(self, at: Moment, output: Any) -> None:
        if at.stage != "train" or self._told:
            return
        self._inside.tell()
        loss = output.get("loss") if isinstance(output, Mapping) else output
        at.emit(
            StepFormats(
                batch=tuple(named(e.path, e.tensor) for e in elements(at.data)),
                weights=weights(at.run.module),
                loss=short(loss.dtype) if isinstance(loss, Tensor) else "",
                **at.tags(),
            )
        )
        self._tell(at)

    def failed(self, at: Moment, error: BaseException) -> None:
        if at.stage == "train":
            self._tell(at)
        if not isinstance(error, (RuntimeError, TypeError, ValueError, NotImplementedError)):
            return
        scene = Scene(error, at.run.module, at.data)
        if not scene.foreign:
            return
        found: dict[str, Any] = {
            "error": scene.message,
            "module": scene.module,
            "where": scene.where,
            "tensors": scene.tensors,
        }
        if DEVICE.search(scene.message):
            loose = tuple(named(t.name, t.tensor) for t in loose_tensors(at.run.module) if t.tensor.ndim)
            at.emit(DeviceClash(**found, loose=loose, **at.tags()))
        elif DTYPE.search(scene.message):
            at.emit(DtypeClash(**found, batch=scene.batch, **at.tags()))

    def _tell(self, at: Moment) -> None:
        if not self._told:
            self._told = True
            at.emit(precision(at, tuple(sorted(self._forward))))


@contextmanager
def _autocast_in_force(device: str, seen: set[str], inside: Inside) -> Iterator[None]:
    """Collect the number formats that autocast has in force when modules with floating-point weights are called."""

    def look(module: nn.Module, args: Any) -> None:
        if any(p is not None and p.is_floating_point() for p in module._parameters.values()):
            on = torch.is_autocast_enabled(device)
            seen.add(short(torch.get_autocast_dtype(device)) if on else "off")

    try:
        torch.is_autocast_enabled(device)
    except RuntimeError:  # a device that autocast does not know
        yield
        return
    handle = register_module_forward_pre_hook(inside.hook(look))
    try:
        yield
    finally:
        handle.remove()


def weights(module: nn.Module) -> tuple[str, ...]:
    """Number formats of the floating-point parameters, the one with most elements first."""
    found: Counter[str] = Counter()
    for parameter in module.parameters():
        if parameter.is_floating_point():
            found[short(parameter.dtype)] += parameter.numel()
    return tuple(name for name, _ in found.most_common())


def precision(at: Moment, forward: tuple[str, ...]) -> PrecisionUse:
    """The precision that was asked for and what became of it."""
    run = at.run
    scaler = getattr(run.plugin, "scaler", None)
    return PrecisionUse(
        asked=run.asked or run.precision,
        used=run.precision,
        accelerator=run.accelerator,
        autocast_device=str(getattr(run.plugin, "device", "") or ""),
        scaler="none" if scaler is None else "enabled" if scaler.is_enabled() else "disabled",
        weights=weights(run.module),
        forward=forward,
        emulated=_emulated(run),
        **at.tags(),
    )


def _emulated(run: Run) -> bool:
    if run.accelerator != "cuda" or not run.precision.startswith("bf16"):
        return False
    try:
        return not torch.cuda.is_bf16_supported(including_emulation=False)
    except (RuntimeError, TypeError):
        return False


def placement(run: Run, at: Moment) -> Placement:
    """Parameters and buffers that are not where the strategy trains."""
    strays: list[NamedTensor] = []
    total = 0
    moved = not any(kind in run.strategy for kind in SHARDED)
    for name, tensor in (*run.module.named_parameters(), *run.module.named_buffers()):
        total += 1
        there = tensor.device
        same = there.type == run.device.type and (run.device.index in (None, there.index) or there.index is None)
        if moved and not same:
            strays.append(named(plain_name(name), tensor))
    return Placement(root=str(run.device), strays=tuple(strays), total=total, **at.tags())
