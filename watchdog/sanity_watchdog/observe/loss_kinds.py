"""Names of torch's loss functions, by what they judge."""

import torch

CLASS_LOSSES = ("cross_entropy", "nll_loss", "linear_cross_entropy")
BINARY_LOSSES = ("binary_cross_entropy", "binary_cross_entropy_with_logits", "multilabel_soft_margin_loss")
DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
COUNTS = ("poisson_nll_loss",)
SIGNED = ("soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss", "cosine_embedding_loss")
NEVER_NEGATIVE = (*CLASS_LOSSES, *BINARY_LOSSES, *DISTANCES)
KINDS = {
    **dict.fromkeys(CLASS_LOSSES, "softmax"),
    **dict.fromkeys(BINARY_LOSSES, "binary"),
    **dict.fromkeys(DISTANCES, "distance"),
    **dict.fromkeys(COUNTS, "counts"),
    **dict.fromkeys(SIGNED, "signed"),
    "kl_div": "divergence",
    "ctc_loss": "alignment",
    "log_softmax": "scores",
}
LABELS = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""Formats of labels; anything else is a soft target."""
