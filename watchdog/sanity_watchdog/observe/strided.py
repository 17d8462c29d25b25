"""Which values of a tensor can be looked at, and an evenly spaced sample of them without a copy."""

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

NORMED = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
"""Formats that torch can reduce; float8 can only be sampled."""
PLAIN = (torch.Tensor, torch.nn.Parameter)


def measurable(tensor: Tensor | None) -> Tensor | str:
    """The dense, real, local values of ``tensor`` as a view, or one word that says why there are none.

    Sparse tensors give their stored entries, complex ones their real view, sharded ones this process's shard.
    """
    if tensor is None:
        return "absent"
    usual = type(tensor) in PLAIN and tensor.dtype in NORMED and tensor.layout is torch.strided
    if usual and not (tensor.is_meta or tensor.is_nested):
        if is_freed(tensor):
            return "freed"
        return tensor.detach() if tensor.numel() else "empty"
    if isinstance(tensor, (UninitializedParameter, UninitializedBuffer)):
        return "lazy"
    inner = getattr(tensor, "_local_tensor", tensor)
    if type(inner).__torch_dispatch__ is not Tensor.__torch_dispatch__:  # code of the user's runs whatever is done
        return type(inner).__name__
    inner = inner.detach()
    if inner.is_meta:
        return "meta"
    if inner.is_nested:
        return "nested"
    if inner.is_quantized:
        return "quantized"
    if inner.layout is torch.sparse_coo:
        inner = inner._values()
    elif inner.layout is not torch.strided:
        return str(inner.layout).removeprefix("torch.")
    if type(inner) not in PLAIN:
        return type(inner).__name__
    if inner.is_complex():
        inner = torch.view_as_real(inner.resolve_conj())
    if not inner.is_floating_point():
        return str(inner.dtype).removeprefix("torch.")
    return inner if inner.numel() else "empty"


def is_freed(tensor: Tensor) -> bool:
    """Has the memory of this strided tensor been given back, as FSDP does with parameters that are not in use?"""
    return tensor.numel() > 0 and tensor.untyped_storage().size() == 0


def is_dense(tensor: Tensor) -> bool:
    """Do the elements fill their memory without gaps or overlap (contiguous, transposed, channels last)?"""
    wanted = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != wanted:
                return False
            wanted *= size
    return True


def thinned(tensor: Tensor, most: int) -> Tensor:
    """A view with at least ``most`` but not many more elements: repeated dimensions once, long ones with a step."""
    repeated = [stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)]
    for dim, repeats in enumerate(repeated):
        if repeats and tensor.numel() // tensor.shape[dim] >= most:
            tensor = tensor.narrow(dim, 0, 1)
    for dim, size in enumerate(tensor.shape):
        step = min(size, tensor.numel() // most)
        if step > 1:
            step -= step % 2 == 0 and step > 2
            tensor = tensor[(slice(None),) * dim + (slice(None, None, step),)]
    return tensor


def sample(tensor: Tensor, most: int, phase: int = 0) -> Tensor:
    """Up to ``most`` elements in memory order, an odd stride apart, flat; all of them where there are no more.

    An odd stride does not fall in step with heads and channels, which come in powers of two. ``phase`` moves the first
    element, so that samples of different steps see different elements. A view for every dense layout.
    """
    dense = tensor.is_contiguous() or is_dense(tensor)
    if not dense:
        tensor = thinned(tensor, most).reshape(-1)
    n = tensor.numel()
    count, stride = min(n, most), max(n // most, 1)
    stride -= stride > 2 and stride % 2 == 0
    start = phase % (n - (count - 1) * stride)
    if dense:
        return tensor.as_strided((count,), (stride,), tensor.storage_offset() + start)
    return tensor[start : start + (count - 1) * stride + 1 : stride]
