"""Devices and number formats: what was asked for, and what the first step really used."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class PrecisionUse(Evidence):
    """The precision that was asked for and the one in use.

    Attributes:
        asked: what the Trainer was given, such as ``16-mixed``; the plugin's own where that is not known.
        used: what the precision plugin calls itself.
        accelerator: ``cpu``, ``cuda``, …
        autocast_device: device that the plugin's autocast is made for; empty where it has none.
        scaler: ``none``, ``enabled`` or ``disabled``.
        weights: number formats of the floating-point parameters, the one with most elements first.
        forward: number formats that autocast had in force in the modules of the first step, ``off`` where it was off;
            empty where the step was not looked into.
        emulated: is bfloat16 emulated by this device?
    """

    asked: str
    used: str
    accelerator: str = "cpu"
    autocast_device: str = ""
    scaler: str = "none"
    weights: tuple[str, ...] = ("float32",)
    forward: tuple[str, ...] = ()
    emulated: bool = False


@dataclass(frozen=True)
class NamedTensor:
    """A tensor at the scene: ``batch[0]``, ``net.0.weight``, a local variable.

    Attributes:
        role: ``registered`` (a parameter or buffer), ``batch``, or empty.
    """

    name: str
    dtype: str
    device: str
    shape: tuple[int, ...] = ()
    role: str = ""


@dataclass(frozen=True, kw_only=True)
class Formats(Evidence):
    """Number formats that met in a step."""


@dataclass(frozen=True, kw_only=True)
class StepFormats(Formats):
    """A first step that went through.

    Attributes:
        batch: tensors of the batch.
        weights: number formats of the floating-point parameters, the one with most elements first.
        loss: number format of the loss; empty where the step returned none.
    """

    batch: tuple[NamedTensor, ...] = ()
    weights: tuple[str, ...] = ("float32",)
    loss: str = ""


@dataclass(frozen=True, kw_only=True)
class DtypeClash(Formats):
    """An operation refused its tensors because of their number formats; the run ends with ``error``.

    Attributes:
        error: first line of the exception.
        module: innermost module of the user's model on the way to it; empty for none.
        where: the user's ``file:line``.
        tensors: what was at hand there. batch: tensors of the batch.
    """

    error: str
    module: str = ""
    where: str = ""
    tensors: tuple[NamedTensor, ...] = ()
    batch: tuple[NamedTensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Devices(Evidence):
    """Devices that met, or would meet on another machine."""


@dataclass(frozen=True, kw_only=True)
class DeviceClash(Devices):
    """An operation refused its tensors because of their devices; the run ends with ``error``.

    Attributes:
        error: first line of the exception.
        module: innermost module of the user's model on the way to it; empty for none.
        where: the user's ``file:line``.
        tensors: what was at hand there.
        loose: attributes of the model that hold tensors without being registered.
    """

    error: str
    module: str = ""
    where: str = ""
    tensors: tuple[NamedTensor, ...] = ()
    loose: tuple[NamedTensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Placement(Devices):
    """Where the model's registered tensors are when training begins.

    Attributes:
        root: device that the strategy trains on.
        strays: parameters and buffers that are elsewhere.
        total: number of parameters and buffers.
    """

    root: str
    strays: tuple[NamedTensor, ...] = ()
    total: int = 0


@dataclass(frozen=True)
class Stranger:
    """A tensor that was made in the step, or kept unregistered, and met tensors of the model or the batch.

    Attributes:
        made: ``arange``, ``zeros``, … for one made in the step; the attribute's name for one kept.
        where: line where it met them. born: line where it was made; empty for an attribute.
        operation: the operation in which it met them.
        attribute: is it an attribute?
    """

    made: str
    where: str
    operation: str
    born: str = ""
    attribute: bool = False


@dataclass(frozen=True, kw_only=True)
class LoosePlacement(Devices):
    """What of a step's tensors would stay behind on the CPU if the model trained on another device.

    Attributes:
        targets: devices meant.
        strangers: tensors made in the step without ``device=`` that met tensors of the model or batch.
    """

    targets: tuple[str, ...]
    strangers: tuple[Stranger, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LooseAttributes(Evidence):
    """Tensors in attributes that are neither parameters nor buffers.

    Attributes:
        accelerator: device that the run is on. targets: other devices meant.
        kept: all of them but single numbers, with their shapes and devices.
        met: those that met tensors of the model or batch in the step; the rest did not, unless ``followed`` is false.
        followed: was the step looked into?
    """

    accelerator: str = "cpu"
    targets: tuple[str, ...] = ()
    kept: tuple[NamedTensor, ...] = ()
    met: tuple[Stranger, ...] = ()
    followed: bool = False
