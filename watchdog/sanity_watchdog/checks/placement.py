"""Devices: where the model's tensors and its data are."""

from collections import Counter

from ..alerts import Severity
from ..evidence.runtime import DeviceClash, Devices, LooseAttributes, LoosePlacement, Placement
from .check import Findings, check


@check("WD403", "device-mismatch", Severity.ERROR, Devices)
def device_mismatch(seen: Devices) -> Findings:
    """Tensors that must meet are on different devices, or would be on a target.

    **What it sees.** Where every parameter and buffer is when training begins; the exception of an operation that
    refused its tensors because of their devices, with the tensors that were at hand (ERROR). With ``targets``: tensors
    made in the step without ``device=`` that meet tensors of the model or of the batch, found while the step runs
    on the CPU, where it makes no difference yet (WARNING).

    **Why it matters.** On a CPU everything is in one place, so that such code passes every test and fails on the first
    machine with an accelerator. A parameter on ``meta`` has no values at all.

    **How to fix.** Make tensors where they are needed::

        position = torch.arange(x.shape[1])                    # before: always on the CPU
        position = torch.arange(x.shape[1], device=x.device)   # after

    Register constants (``register_buffer``), and let Lightning move model and batch.

    **When to ignore.** A part of the model that is kept on the CPU on purpose, and moved by hand.

    **Limits.** On the CPU only the first training step and the first validation batch are followed, and not where
    anything is compiled. Strategies that shard or split a model place tensors themselves and are left out. A tensor
    that is made by code outside torch and moved by no call that torch sees may be accused.

    **Sources.** PyTorch: zero-dimensional tensors and indices may stay on the CPU, nothing else may; Lightning's
    guide to hardware-agnostic training.
    """
    if isinstance(seen, DeviceClash):
        yield from _clash(seen)
    elif isinstance(seen, Placement) and seen.strays:
        empty = [t for t in seen.strays if t.device == "meta"]
        strays = empty or list(seen.strays)
        what = (
            "have no values: they are still on meta" if empty else f"are on {strays[0].device}, training on {seen.root}"
        )
        yield device_mismatch.alert(
            seen,
            f"{len(strays)} of {seen.total} parameters and buffers {what}",
            severity=Severity.ERROR if empty else Severity.WARNING,
            hint="give them values before fit (to_empty, then initialise)" if empty else "let Lightning move the model",
            subjects=[t.name for t in strays],
            evidence={"root": seen.root, "elsewhere": len(strays), "total": seen.total},
        )
    elif isinstance(seen, LoosePlacement):
        for stranger in seen.strangers:
            yield device_mismatch.alert(
                seen,
                f"{stranger.made} without device= meets the model's tensors in {stranger.operation}",
                severity=Severity.WARNING,
                hint="give it device=self.device, or make it with x.new_… of a tensor that is there",
                subjects=(stranger.made,),
                where=stranger.born or stranger.where,
                evidence={"targets": ", ".join(seen.targets), "made": stranger.born, "met": stranger.where},
            )


def _clash(seen: DeviceClash) -> Findings:
    devices = Counter(t.device for t in seen.tensors if t.shape)
    home = next((t.device for t in seen.tensors if t.role), max(devices, key=lambda d: devices[d], default=""))
    loose = [t for t in seen.loose if t.device != home and t.name.rpartition(".")[0] == seen.module]
    culprits = loose or [t for t in seen.tensors if t.shape and t.device != home]
    what = f"{culprits[0].name} is on {culprits[0].device}, the others on {home}" if home and culprits else seen.error
    hint = "register it as a buffer: self.register_buffer(…)" if loose else "move it there, or make it with device="
    told = {"error": seen.error[:160], "devices": ", ".join(devices), "module": seen.module}
    yield device_mismatch.alert(
        seen,
        what[:99],
        hint=hint,
        subjects=dict.fromkeys((*(t.name for t in culprits), *((seen.module,) if seen.module else ()))),
        where=seen.where,
        evidence={k: v for k, v in told.items() if v},
    )


@check("WD404", "unregistered-tensor", Severity.WARNING, LooseAttributes, implied_by=("WD313",))
def unregistered_tensor(seen: LooseAttributes) -> Findings:
    """A tensor kept as a plain attribute does not follow the model to its device.

    **What it sees.** Tensors in attributes, lists, dictionaries and distributions of the model that are neither
    parameters nor buffers. With ``targets``, the first step is followed to see whether they meet tensors of the model
    or the batch there: then the step fails on every other device (WARNING). Otherwise it is worth knowing (INFO).

    **Why it matters.** ``model.to(device)`` moves parameters and buffers only. On a CPU nothing happens; on an
    accelerator the step fails with "Expected all tensors to be on the same device". Such tensors are also missing
    from checkpoints.

    **How to fix.** Register it::

        self.mask = torch.ones(20)                        # before
        self.register_buffer("mask", torch.ones(20))      # after; persistent=False keeps it out of checkpoints

    **When to ignore.** Tensors that are meant to stay on the CPU: a cache, a replay buffer, a table that is indexed
    and moved in the step.

    **Limits.** Single numbers (zero dimensions) may meet tensors of any device and are left out, as are modules that
    move their tensors by an ``_apply`` of their own. Objects of other classes are not looked into, except
    distributions. Where the step is not followed (something is compiled), only the list is known.

    **Sources.** PyTorch, ``nn.Module.register_buffer``; Lightning, "Make your code hardware agnostic".
    """
    met = {s.made: s for s in seen.met}
    guilty = [t for t in seen.kept if t.name in met]
    rest = [t for t in seen.kept if t.name not in met]
    aims = ", ".join(seen.targets)
    if guilty:
        first = met[guilty[0].name]
        yield unregistered_tensor.alert(
            seen,
            f"{_are(len(guilty))} not registered and would stay on {guilty[0].device} on {aims}"[:99],
            hint=_register(guilty[0].name),
            subjects=[t.name for t in guilty],
            where=first.where,
            evidence={"targets": aims, "operation": first.operation, "shape": str(guilty[0].shape)},
        )
    if rest:
        grave = bool(seen.targets) and not seen.followed
        yield unregistered_tensor.alert(
            seen,
            f"{_are(len(rest))} not registered: neither moved with the model nor in checkpoints",
            severity=Severity.WARNING if grave else Severity.INFO,
            hint=_register(rest[0].name),
            subjects=[t.name for t in rest],
            evidence={"accelerator": seen.accelerator, "shape": str(rest[0].shape)},
        )


def _are(count: int) -> str:
    return "1 tensor attribute is" if count == 1 else f"{count} tensor attributes are"


def _register(name: str) -> str:
    within = name.endswith("]")
    while name.endswith("]"):
        name = name[: name.rindex("[")]
    attribute = name.rpartition(".")[2]
    if within:
        return f"register each tensor of {attribute}: self.register_buffer(name, …)"
    return f'register it: self.register_buffer("{attribute}", …)'
