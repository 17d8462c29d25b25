"""Modules that compute differently while a torch function mode is active."""

from torch import nn

GUARDED = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)
"""In eval mode these take a fused path unless an argument "has a torch function", which every argument has under such
a mode: the path, and with it the low bits of the result, would change."""


def has_fast_path(model: nn.Module) -> bool:
    """Could a torch function mode change what ``model`` computes now?"""
    return any(isinstance(m, GUARDED) and not m.training for m in model.modules())
