"""What to do where an operator is not there: ways out that are known to work."""

from .native_functions import plain

SINCE = {
    "mps": {
        "_linalg_eigh": "2.14",
        "linalg_matrix_exp": "2.14",
        "_linalg_svd": "2.14",
        "_ctc_loss": "2.14",
        "_ctc_loss_backward": "2.14",
        "geqrf": "2.14",
        "linalg_qr": "2.12",
        "_cdist_backward": "2.13",
        "grid_sampler_3d_backward": "2.13",
        "_unique": "2.11",
        "cholesky_inverse": "2.11",
        "_embedding_bag": "2.10",
        "_embedding_bag_backward": "2.10",
        "unique_dim": "2.10",
        "grid_sampler_3d": "2.9",
        "max_pool3d_with_indices": "2.9",
        "avg_pool3d": "2.9",
    }
}
"""First torch release with a kernel, read from the ``native_functions.yaml`` of every macOS wheel from 2.3 to 2.15."""

INSTEAD = {
    "_nested_tensor_from_mask_left_aligned": "build the encoder with enable_nested_tensor=False, or call "
    "torch.backends.mha.set_fastpath_enabled(False)",
    "_nested_tensor_from_mask": "build the encoder with enable_nested_tensor=False, or call "
    "torch.backends.mha.set_fastpath_enabled(False)",
    "smooth_l1_loss": "write it out: torch.where(d < beta, 0.5 * d**2 / beta, d - 0.5 * beta).mean() with "
    "d = (input - target).abs()",
    "huber_loss": "write it out: torch.where(d < delta, 0.5 * d**2, delta * (d - 0.5 * delta)).mean() with "
    "d = (input - target).abs()",
    "_pdist_forward": "use torch.cdist(x, x) and take the pairs above the diagonal",
    "_adaptive_avg_pool3d": "average by hand: x.mean((-3, -2, -1)) for an output size of 1, else nn.AvgPool3d",
}
"""Replacements for single operators, by name without overload."""

ON_PURPOSE = {
    "mps": ("_native_multi_head_attention", "_transformer_encoder_layer_fwd", "_nested_tensor_from_mask"),
}
"""Operators that ``torch.nn`` calls only after asking whether the device is one of cpu, cuda, xpu or the private one
(``torch/nn/modules/transformer.py`` and ``activation.py``): never reached on the target."""


def way_out(operator: str, target: str) -> str:
    """What to do instead of ``operator`` on ``target``; empty where nothing is known."""
    name = plain(operator).partition(".")[0]
    name = name if name in INSTEAD else name.removesuffix("_backward")
    since = SINCE.get(target, {}).get(plain(operator).partition(".")[0])
    parts = [INSTEAD.get(name, ""), f"torch {since} has it" if since else ""]
    return "; or ".join(p for p in parts if p)


def never_reached(operator: str, target: str) -> bool:
    """Does torch itself keep this operator away from ``target``?"""
    return plain(operator).partition(".")[0] in ON_PURPOSE.get(target, ())
