"""Updates of weights that are stored in half precision."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class LostUpdates(Evidence):
    """Share of the intended movement of half-precision weights that rounded away, at the last samples.

    Attributes:
        shares: pooled over all half-precision parameters, one per sample with a real step and a rate above 0.
        dtype: format of the weights.
        parameters: parameters in that format, by name; those that lost most first, at most 64.
        tensors: how many were compared.
        rate: learning rate of the last sample.
        native_bf16: does the device compute in bfloat16 natively?
    """

    shares: tuple[float, ...]
    dtype: str
    parameters: tuple[str, ...]
    tensors: int
    rate: float
    native_bf16: bool
