"""What outputs depend on: other samples, the future, the input at all."""

import math

from ..alerts import Severity, number
from ..evidence.dependence import Dependence, PositionWeights, Suspect
from .check import Findings, Skip, check

MOST = 0.5
"""Share of the other samples that must have an influence: mixing pairs on purpose reaches one or two."""
SEVERAL = 2
"""Other samples whose influence counts where a reshape has exchanged the axis of the samples."""
FEWEST = 4
"""Samples below which that share means nothing."""
INFLUENCE = 1e-4
"""Relative influence that counts; rounding of float16 sums stays below it only where there is none at all."""
RESHAPED = "{} exchanges two axes, but keeps the order in memory: use transpose"
MIXING = {
    "samples moved": RESHAPED,
    "reshaped": RESHAPED,
    "over the batch": "{} runs over the axis of the samples: give it the right dim",
    "time first": "{} takes (time, batch, features): batch_first=True, or transpose before it",
}
"""Fixes by kind of suspect, the surest first."""
ONE = "all scores are made of one sample: look for [0], [:1], expand() or a batch of one"
ORDER = "give scores and targets one order: shuffle both or neither, transpose before a reshape"
MASK = "check the causal mask (its sign, every layer) and the axes on the way to the loss"
INSIDE = (
    "the targets lie inside the input, which the model has read: let them begin behind its end, or mask what is later"
)
LOOKING_AHEAD = {
    "dropped": "take the result: {} makes a new tensor, which nobody takes, and masks nothing",
    "samples moved": RESHAPED,
    "reshaped": RESHAPED,
    "both ways": "{} runs both ways: bidirectional=False",
    "unmasked": "pass a causal mask (is_causal=True): {} has none",
    "both sides": "{} is padded on both sides: pad the left only, F.pad(x, (dilation * (kernel_size - 1), 0))",
    "padded": "{} pads after the last position as well: pad the left only",
}


@check("WD131", "mixed-samples", Severity.ERROR, Dependence, implied_by=("WD103",))
def mixed_samples(seen: Dependence) -> Findings:
    """The output of one sample depends on the other samples of its batch.

    **What it sees.** The gradient of one sample's scores with respect to the places where the batch meets the first
    weights, from the graph of the first step itself. It alerts when at least half of the other samples have an
    influence above 10⁻⁴ of the sample's own. Where every view and reshape of data and targets could be followed, it
    alerts as well when scores of two samples depend on others and not on their own (with BatchNorm: more than twice as
    much on another), as where labels alone are shuffled; behind a reshape that exchanges the axis of the samples one is
    enough, or two others beside its own. Where the batch enters a recurrent layer or attention first, its axes are
    compared with ``batch_first``; further in, only where the scores depend on no sample at all. A table (positions,
    1, features) that is cut at the number of samples, or embedded numbers of the samples, added to (samples, time,
    features), give each sample the code of its place in the batch. Last states (layers, samples, features) that are
    reshaped to (samples, all features).

    **Why it matters.** The model attends or averages over the wrong axis. It may learn from the company of a sample,
    and gives another answer for each batch it is evaluated in.

    **How to fix.** Look for the axis: ``batch_first=True`` for attention, encoders and RNNs that get ``(batch, time,
    features)``; ``dim=`` of softmax, mean and norms; ``view`` where ``transpose`` is meant::

        nn.TransformerEncoderLayer(64, 4)                      # before: expects (time, batch, features)
        nn.TransformerEncoderLayer(64, 4, batch_first=True)    # after

    **When to ignore.** Where samples are meant to see each other. BatchNorm and statistics over the batch, contrastive
    losses, attention over a table of samples that was made one sequence (``x[None]``), graphs, pairs that are mixed on
    purpose, supports of an episode, and scores behind a gradient (meta-learning) are not judged. Nor are rows in the
    order of time: a loader that does not shuffle, and a recurrence, convolution or attention over a batch of one that
    ``forward`` made of them.

    **Limits.** Skipped, with its reason, where the graph must not be run twice: checkpointing, hooks, custom autograd
    functions, compiled parts, sharded strategies. Needs a loss function that can be seen, and four samples. The
    loader's batch size and collate function tell the axis of the samples: ready batches (``batch_size=None``), an item
    at a time (a document, with a target for each token), batches with more rows than items were drawn, and your own
    collate function with as many steps as samples are not judged. Those of your own batch sampler must have a target
    for each sample. Nor is it judged where neither targets nor sizes tell whose scores those of an ensemble are.

    **Sources.** Karpathy, A Recipe for Training Neural Networks: use backprop to chart dependencies.
    """
    hint = "look for the wrong axis: batch_first=True, dim= of softmax, mean and norms, view for transpose"
    if seen.sequential:
        yield mixed_samples.alert(
            seen,
            f"{seen.sequential} takes the {seen.samples} samples for the steps of one sequence: batch_first=False",
            hint="batch_first=True, or give it (time, batch, features)",
            where=seen.where,
            evidence={"samples": seen.samples},
        )
    elif seen.placed:
        yield mixed_samples.alert(
            seen,
            f"a table of positions, cut to the {seen.samples or 'number of'} samples, is added along the batch",
            hint="lay it along the sequence: pe[:x.size(1)].transpose(0, 1), or embed torch.arange(x.size(1))",
            severity=Severity.WARNING,
            where=seen.placed,
            evidence={"samples": seen.samples},
        )
    elif seen.torn:
        yield mixed_samples.alert(
            seen,
            "a reshape of last states (layers, samples, features) puts those of different samples into one row",
            hint="bring the samples first: h.transpose(0, 1).reshape(h.size(1), -1), or torch.cat((h[-2], h[-1]), -1)",
            where=seen.torn,
            evidence={"samples": seen.samples},
        )
    elif seen.reason or seen.mixing_reason:
        yield Skip(seen.reason or seen.mixing_reason)
    elif seen.samples >= FEWEST and (seen.astray >= 0 or (seen.others >= SEVERAL and _moved(seen))):
        what = f"on sample {seen.astray}, not on itself" if seen.astray >= 0 else f"on {seen.others} other samples"
        yield mixed_samples.alert(
            seen,
            f"the scores of sample {seen.own} depend {what}: samples have changed places",
            hint=ONE if seen.single else _fix(seen.suspects, MIXING) or ORDER,
            where=seen.where,
            evidence={"samples": seen.samples, "sample": seen.own, "others": seen.others},
        )
    elif math.isnan(seen.sharing) or seen.samples < FEWEST:
        yield Skip("the axis of the batch was not recognised, or it has fewer than four samples")
    elif seen.scored and round(seen.sharing * (seen.samples - 1)) <= seen.samples - seen.scored:
        if seen.sharing:
            yield Skip("samples without scores of their own, as the supports of an episode")
    elif seen.sharing >= MOST and seen.influence > INFLUENCE:
        yield mixed_samples.alert(
            seen,
            f"the scores of one sample depend on {seen.sharing:.0%} of the other samples ({number(seen.influence)})",
            hint=_fix(seen.suspects, MIXING) or hint,
            where=seen.where,
            evidence={"samples": seen.samples, "sharing": seen.sharing, "influence": seen.influence},
        )


@check("WD132", "sees-the-future", Severity.ERROR, Dependence, implied_by=("WD131", "WD134"))
def sees_the_future(seen: Dependence) -> Findings:
    """Predictions of the next token or value depend on later ones.

    **What it sees.** The gradient of the prediction at one position with respect to the entering values of its own
    sequence, from the graph of the first step; the layer that a series enters by is run once more for it. Only where
    the targets are that input, or a feature of it, shifted by one.

    **Why it matters.** The model copies the answer: the loss falls to nearly nothing, and generation is noise.

    **How to fix.** Pass a causal mask: ``is_causal=True``, ``mask=nn.Transformer.generate_square_subsequent_mask(t)``;
    check its sign and that it reaches every layer. A one-way RNN; convolutions padded on the left only; ``transpose``,
    not ``reshape``, to bring scores to the loss::

        F.scaled_dot_product_attention(q, k, v)                    # before
        F.scaled_dot_product_attention(q, k, v, is_causal=True)    # after

    **When to ignore.** Never where the next token is the target.

    **Limits.** As for mixed-samples; masked, permuted and prefix models have other targets and are not judged. One
    position of one sample is asked. What a code tells that is drawn once for a whole sequence, as a variational encoder
    does, is taken as meant.

    **Sources.** Karpathy, nanoGPT; TrainCheck 2025 on missing masks.
    """
    if seen.reason or seen.causal_reason:
        yield Skip(seen.reason or seen.causal_reason)
    elif math.isnan(seen.later):
        yield Skip("the targets are not an input, shifted by one")
    elif not seen.later <= INFLUENCE:
        yield sees_the_future.alert(
            seen,
            f"position {seen.position} of {seen.length} depends on later ones ({number(seen.later)} of earlier)",
            hint=_fix(seen.suspects, LOOKING_AHEAD) or (INSIDE if seen.before else MASK),
            where=seen.where,
            evidence={"position": seen.position, "length": seen.length, "later": seen.later},
        )


def _moved(seen: Dependence) -> bool:
    """Has a reshape exchanged the axis of the samples?"""
    return any(s.kind == "samples moved" for s in seen.suspects)


def _fix(suspects: tuple[Suspect, ...], fixes: dict[str, str]) -> str:
    """What to do about the surest suspect."""
    for kind, fix in fixes.items():
        for suspect in suspects:
            if suspect.kind == kind:
                at = f" at {suspect.where}" if suspect.where and not suspect.module else ""
                return fix.format(suspect.module or suspect.operation + at)
    return ""


@check("WD133", "input-ignored", Severity.ERROR, Dependence, implied_by=("WD109",))
def input_ignored(seen: Dependence) -> Findings:
    """The scores do not depend on the batch at all.

    **What it sees.** Whether the graph of the first step leads from the scores of a classification loss back to any
    place where data of the batch met a weight. A key padding mask, or which keys scores of -10,000 and less hide from
    all queries, is compared with the token that ends the rows: it is turned round where it keeps nearly all of this
    padding and hides most other tokens. Weights of positions that are
    summed up are 1, whatever the input, where a softmax runs over the one output of a layer.

    **Why it matters.** Only the frequency of the labels can be learned.

    **How to fix.** Look at ``forward``: a variable that is overwritten, a branch that returns a constant, features that
    are computed and not used::

        features = self.encoder(x)
        return self.head(self.start)    # before
        return self.head(features)      # after

    **When to ignore.** A model of the label frequencies alone.

    **Limits.** A structural question: inputs that are multiplied by zero are not found here. Skipped where data of the
    batch pass through NumPy or Python numbers, which lose their track, where the step is compiled, and where values
    that are neither parameters, buffers nor made in the step enter the scores: scripted parts, caches, other threads.

    **Sources.** Karpathy: input-independent baseline.
    """
    if seen.inverted:
        yield input_ignored.alert(
            seen,
            "the mask of attention hides the tokens and keeps the padding",
            hint="key_padding_mask=ids == padding is True where to hide; an attention_mask is 1 where to look",
            where=seen.inverted,
            evidence={"samples": seen.samples},
        )
    elif seen.lone:
        yield input_ignored.alert(
            seen,
            "the weights of positions are a softmax over an axis of length 1: each is 1, whatever the input",
            hint="give softmax the axis of the positions, such as dim=1",
            where=seen.lone,
            severity=Severity.WARNING,
            evidence={"samples": seen.samples},
        )
    elif seen.reason:
        yield Skip(seen.reason)
    elif seen.connected is None:
        yield Skip("no data of the batch met a weight, or no classification loss")
    elif not seen.connected:
        yield input_ignored.alert(
            seen,
            f"the scores {seen.shape} of {seen.function} do not depend on the batch",
            hint="look in forward for a variable that is overwritten, or features that are computed and not used",
            where=seen.where,
            evidence={"samples": seen.samples},
        )


@check("WD134", "misweighted-positions", Severity.WARNING, PositionWeights, implied_by=("WD136",))
def misweighted_positions(seen: PositionWeights) -> Findings:
    """Attention is normalised over the queries, or gives weight to padding: its mask is missing, or a mere factor.

    **What it sees.** In the first step: a product of two activations that has as many rows as columns, a softmax over
    the axis of the first one's (the last but one, or as ``einsum`` lays it), and then a sum over the other one with
    these weights. Scores that are multiplied by zeros and ones of the batch, right before a softmax over an axis along
    which both occur, whose result weighs values and is not masked again. And fused attention that gets no mask at all,
    or a softmax by hand that gives weight to each position before it sums up values and is not masked afterwards, over
    positions whose ids end (or begin) in runs of different lengths of one token that stands nowhere else, where a
    tenth of the positions are such padding.

    **Why it matters.** Normalised over the queries the weights of a query sum to anything: its output grows and shrinks
    with what the others look at. A score of 0 is a score like others: exp(0) is 1, and padding keeps its weight.

    **How to fix.** ::

        weights = (q @ k.transpose(-2, -1)).softmax(-2)               # before: over the queries
        weights = (q @ k.transpose(-2, -1)).softmax(-1)               # after: over the keys
        weights = (scores * mask).softmax(-1)                         # before
        weights = scores.masked_fill(mask == 0, -torch.inf).softmax(-1)   # after
        encoder(embed(ids))                                           # before
        encoder(embed(ids), src_key_padding_mask=ids == padding)      # after; a hub model: attention_mask=mask

    **When to ignore.** Where queries are meant to compete for keys without being normalised afterwards, and where the
    token that fills the rows up is meant to be attended to.

    **Limits.** Queries and keys of different numbers are left alone (slots and clusters compete on purpose), and so is
    what fused attention does with its mask. Padding of a language model is left to its causal mask. Without ids that
    an embedding looks up no padding is known. The first step only; not where the step is compiled.

    **Sources.** Vaswani et al. 2017: a softmax over the keys; illegal connections are set to minus infinity.
    """
    if seen.across:
        yield misweighted_positions.alert(
            seen,
            "a softmax over the queries makes weights that then sum up the keys",
            hint="normalise over the keys, which are summed up next: softmax(dim=-1) for scores (..., queries, keys)",
            where=seen.across,
            evidence={"axis": -2},
        )
    elif seen.masked:
        yield misweighted_positions.alert(
            seen,
            "scores are multiplied by a mask before their softmax: hidden places get the score 0, not -inf",
            hint="scores.masked_fill(mask == 0, -torch.inf) before the softmax",
            where=seen.masked,
            evidence={"score": 0.0},
        )
    elif seen.unmasked:
        yield misweighted_positions.alert(
            seen,
            f"attention without a mask over positions of which {seen.padding:.0%} are padding",
            hint="hide it: src_key_padding_mask=ids == padding; a hub model takes attention_mask=ids != padding",
            where=seen.unmasked,
            evidence={"padding": seen.padding},
        )
