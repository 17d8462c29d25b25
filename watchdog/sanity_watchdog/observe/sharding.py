"""Parameters of which each rank holds a part."""

import math
from typing import Any

import torch
from torch import Tensor, nn

SHARDED = ("FSDP", "DeepSpeed", "ModelParallel", "Sharded")
"""Words in the names of strategies that shard parameters."""


def sharding(module: nn.Module, strategy: str) -> str:
    """Why ranks need not hold equal parameters; empty where they must."""
    if any(word in strategy for word in SHARDED):
        return f"{strategy} shards the parameters"
    if any(type(p) not in (Tensor, nn.Parameter) for p in module.parameters()):
        return "parameters are sharded"
    return ""


def sharing(module: nn.Module) -> str:
    """Why ranks are meant to see the same data; empty where each has its own."""
    mesh = getattr(module, "device_mesh", None)
    names = getattr(mesh, "mesh_dim_names", None) or ()
    parallel = mesh is not None and "tensor_parallel" in names and mesh["tensor_parallel"].size() > 1
    return "tensor-parallel ranks share their data" if parallel else ""


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor; the tensor itself where it is whole."""
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def share(tensor: Any, world: int) -> float:
    """What this rank's part counts in a sum over all ranks, so that every element counts once: one over the number of
    ranks that hold it. NaN where the part is a summand of the values."""
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return 1 / world
    if any(p.is_partial() for p in placements):
        return math.nan
    parts: int = math.prod(size for size, p in zip(tensor.device_mesh.shape, placements, strict=True) if p.is_shard())
    return parts / world


def squares(tensors: list[Tensor], world: int) -> Tensor | None:
    """This rank's summand of the squared L2 norm of all ``tensors``: a float32 scalar, None where there are none."""
    parts = [(local(t.detach()), share(t, world)) for t in tensors]
    parts = [(part, weight) for part, weight in parts if part.numel() and part.layout is torch.strided]
    if not parts:
        return None
    norms = torch.stack([n.float() for n in torch._foreach_norm([p for p, _ in parts], 2)])
    return (norms.square() * torch.tensor([w for _, w in parts], device=norms.device)).sum()


def joins(wrapper: nn.Module | None) -> bool:
    """Is the wrapper inside ``torch.distributed.algorithms.Join``, which lets ranks run out of batches one by one?"""
    return bool(getattr(getattr(wrapper, "_join_config", None), "enable", False))
