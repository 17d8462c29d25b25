"""Which number formats a run uses, and which its device has."""

import torch
from torch import nn

from .run import Run

HALF = (torch.float16, torch.bfloat16)


def native_bf16(device: torch.device) -> bool:
    """Does this device compute in bfloat16 without emulation? False where that cannot be known."""
    if device.type == "cuda":
        return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", bool)())
    return device.type in ("xla", "tpu")


def autocasts_to_half(run: Run) -> bool:
    """Does Lightning's precision plugin run the step under float16 autocast?"""
    return run.precision == "16-mixed" and getattr(run.plugin, "precision", "16-mixed") == "16-mixed"


def has_dtype(module: nn.Module, dtype: torch.dtype) -> bool:
    """Is any trainable parameter stored in ``dtype``?"""
    return any(p.dtype is dtype and p.requires_grad for p in module.parameters())


def live_scaler(run: Run) -> bool:
    """Is there a loss scaler that scales?"""
    enabled = getattr(run.scaler, "is_enabled", None)
    return bool(enabled()) if callable(enabled) else False


def scale_of(run: Run, device: torch.device) -> torch.Tensor:
    """The current loss scale as a tensor on its device, never read here; 1 without a live scaler."""
    scale = getattr(run.scaler, "_scale", None) if live_scaler(run) else None
    return scale.detach() if isinstance(scale, torch.Tensor) else torch.ones((), dtype=torch.float32, device=device)
