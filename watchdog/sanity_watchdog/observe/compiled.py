"""Is anything in this process compiled? Then torch modes and hooks stay off: they would break or recompile graphs."""

import sys

from torch import nn


def compiled(module: nn.Module) -> bool:
    """Was anything given to ``torch.compile`` in this process, or is a part of ``module`` compiled?

    Never imports Dynamo. A function compiled before ``torch._dynamo.reset()`` is not noticed.
    """
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(frames, "cached_backends", None)
    if backends and any(b is not None for b in tuple(backends.values())):
        return True
    return any(
        getattr(m, "_compiled_call_impl", None) is not None or "_orig_mod" in m._modules for m in module.modules()
    )
