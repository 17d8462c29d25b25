"""What made a loss NaN or infinite: the likeliest cause that the evidence supports, and its fix."""

import math

from ..alerts import number
from ..evidence.progress import EMPTY, HALF, Culprit, LossFinite

HUGE, TENFOLD = 1e4, 10.0
"""A loss before the first NaN that is that large, or that much above the lowest one, overflowed."""
MASK = "leave a key open in each row of the mask, or drop samples that have none"
WRITTEN = "no gradient did that: look at what else writes to it (a callback, an average, a division by 0), and at eps"
BROKEN = "look at the step before: its gradients, what clips or averages, a division by zero where weights are written"
WEIGHTS = "give each class that occurs a weight above 0"


def cause(seen: LossFinite) -> tuple[str, str]:
    """What made the loss not finite, and the fix; the likeliest first."""
    logs = [h for h in seen.hazards if h.startswith("log")]
    half = seen.precision.startswith("16")
    if seen.bad_input:
        which = "this batch" if seen.bad_batch == seen.batch else f"batch {seen.bad_batch}"
        return f"{seen.bad_input} of {which} is not finite", "drop or impute these values where the data are made"
    if seen.ignored:
        return "every label is ignored, a mean of nothing", "skip such batches, or divide by max(count, 1)"
    if seen.size == 0:
        return "a batch without samples, a mean of nothing", "leave empty batches out, in the sampler or the step"
    if seen.size == 1 and seen.usual > 1:
        return "a batch of one sample, whose deviation is NaN", "drop_last=True, or std(correction=0) with an epsilon"
    if seen.culprit is not None:
        return made_by(seen.culprit)
    if seen.spoiled is not None and seen.spoiled.by_others:
        return f"{seen.spoiled.name} was NaN or infinite before it", WRITTEN
    if logs:
        return f"{logs[0]}, which rounds to 0", "use log_softmax, logsigmoid or cross_entropy on the logits"
    if half:
        return (
            "float16: above 65504, or an epsilon below 6e-8 that is 0",
            "use bf16, or an epsilon of at least 1e-4; keep divisions and sums in float32",
        )
    earlier = seen.earlier
    if (earlier and earlier[-1] > HUGE) or (len(earlier) > 1 and earlier[-1] > TENFOLD * max(min(earlier), 1e-12)):
        grown = f"it had grown from {number(min(earlier))} to" if len(earlier) > 1 else "the one before was"
        return f"{grown} {number(earlier[-1])}", "lower the learning rate, clip gradients, scale down the last layer"
    ctc = next((h for h in seen.hazards if "ctc_loss" in h), "")
    if ctc and seen.value == math.inf:
        return ctc, "check input_lengths and target_lengths; zero_infinity=True for a few such samples"
    if seen.hazards:
        first = seen.hazards[0]
        what = "clamp what goes in to an epsilon above 0" if "root" in first else "add an epsilon there"
        fix = f"{what}: {', '.join(seen.hazards)}"
        fix = WEIGHTS if "weights of 0" in first else fix
        fix = MASK if "mask" in first else "clamp what goes into it" if "exponential" in first else fix
        return f"possibly {first}", fix
    if seen.spoiled is not None:
        return f"{seen.spoiled.name} was NaN or infinite before it", BROKEN
    return "cause unknown", "run that batch under torch.autograd.detect_anomaly() to find the operation"


def made_by(culprit: Culprit) -> tuple[str, str]:
    """What the operation was given, and the fix."""
    name, low, high = culprit.operation, number(culprit.low), number(culprit.high)
    negative = culprit.low < 0
    if name.startswith(EMPTY):
        return (
            f"{name.removeprefix(EMPTY)} of no values, a mean of nothing",
            "leave it out then, or divide a sum by max(1, count)",
        )
    if name.startswith(HALF):
        most = number(max(abs(culprit.low), abs(culprit.high)))
        return (
            f"{name.removeprefix(HALF)} in float16 of values up to {most}: it ends at 65504",
            "keep sums and large values in float32, or use bfloat16",
        )
    if low == "-inf":
        return f"{name} of a row that is masked throughout", MASK
    if name == "multi_head_attention_forward":
        return "attention over a row of keys masked throughout", MASK
    if name == "poisson_nll_loss":
        return f"{name} takes the logarithm of rates down to {low}", "use log_input=True, or softplus before it"
    if name in ("cross_entropy", "nll_loss") and math.isfinite(culprit.high):
        return f"{name} divides by weights that sum to 0", WEIGHTS
    if name.startswith("log") and name not in ("logsumexp", "log_softmax", "logit"):
        return (
            (
                f"{name} of negative values, down to {low}",
                "make them positive first: softplus, or log_softmax of scores",
            )
            if negative
            else (f"{name} of {low}", "add an epsilon, or use log_softmax, logsigmoid or cross_entropy on the scores")
        )
    if name in ("sqrt", "rsqrt"):
        return f"{name} of {low}", "clamp what goes in to an epsilon above 0"
    if name in ("exp", "expm1", "exp2"):
        return f"{name} of {high} overflows", "clamp what goes in (log-variances to ±10), or use softplus"
    if name in ("div", "rdiv", "reciprocal"):
        return f"a division by {low}", "add an epsilon to the divisor, or clamp it away from 0"
    if name in ("acos", "arccos", "asin", "arcsin", "atanh"):
        return f"{name} of {culprit.low:.8g} to {culprit.high:.8g}", "clamp what goes in to the inside of (-1, 1)"
    return f"{name} of values from {low} to {high}", f"keep what goes into {name} inside its domain"
