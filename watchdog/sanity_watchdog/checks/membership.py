"""Membership: module, optimizer and loss have to agree on what is trained."""

from ..alerts import Severity
from ..evidence.membership import Frozen, LossLeaves, Membership, Reached, Stranger
from .check import Findings, Skip, check

LARGE_SHARE = 0.25
"""Share of the trainable elements without a gradient from which on a part of the model is not just a spare head."""
LARGE_MATRICES = 0.5
"""Share of the matrices, likewise: an embedding or a head may hold most of the elements."""
FEW = 2
"""Vectors left trainable that nobody would build an optimizer over the whole model for."""


@check("WD311", "outside-optimizer", Severity.ERROR, Membership, implied_by=("WD312",))
def outside_optimizer(seen: Membership) -> Findings:
    """A trainable parameter gets gradients, but no optimizer holds it.

    **What it sees.** After the first backward: parameters that require a gradient and have got one, compared by
    identity with everything that the optimizers hold.

    **Why it matters.** The parameter keeps its initial values for the whole run, and backward is paid for it.

    **How to fix.** Give the optimizer every parameter, or freeze what is not to train::

        torch.optim.Adam(self.head.parameters())            # before: the backbone never trains
        torch.optim.Adam(self.parameters())                 # after, if it is to train
        self.backbone.requires_grad_(False)                 # after, if it is not

    **When to ignore.** Where the parameter is updated by hand: ``ignore=["WD311:codebook"]``.

    **Limits.** A module in eval mode is taken as deliberately still and only noted. Copies without a gradient (EMA,
    teachers) are not meant. With several optimizers in manual optimisation the verdict waits for two steps of each.
    BatchNorm under a ``BaseFinetuning`` callback is judged at the end, and only noted where its turn never came.

    **Sources.** Humbatova et al., *Taxonomy of Real Faults in Deep Learning Systems*, optimiser faults.
    """
    if not seen.optimizers:
        yield Skip("no optimizer: parameters may be updated by hand")
        return
    meant = [m for m in seen.missing if not m.evaluating] or list(seen.missing)
    if meant:
        elements = sum(m.numel for m in meant)
        yield outside_optimizer.alert(
            seen,
            f"{len(meant)} of {seen.trainable} trainable parameters get gradients and are in no optimizer",
            severity=Severity.INFO if seen.waiting or meant[0].evaluating else None,
            hint="give them to an optimizer, or freeze them (a target, a teacher) with requires_grad_(False)",
            subjects=[m.name for m in sorted(meant, key=lambda m: -m.numel)],
            evidence={"missing": len(meant), "trainable": seen.trainable, "elements": elements},
        )


@check("WD312", "foreign-in-optimizer", Severity.ERROR, Membership)
def foreign_in_optimizer(seen: Membership) -> Findings:
    """An optimizer holds trainable tensors that are not the module's, or those of another optimizer.

    **What it sees.** Tensors in the optimizers' groups that require a gradient, belong to no registered module, and
    have no gradient after the first backward. Two parameters that lie in one memory and both get gradients are a
    warning: ties made with ``.data``. And parameters that two optimizers step with a gradient in the same batch: a
    warning where one holds all that trains and the other one a part of it, a note for other overlaps.

    **Why it matters.** The optimizer steps copies, or parameters that were replaced after it was made: what the loss
    uses stays as it is. A generator's optimizer that was given ``self.parameters()`` also trains the discriminator to
    be fooled.

    **How to fix.** Build the optimizer last, from the module that trains::

        torch.optim.Adam(Model().parameters())     # before: a second, fresh model
        torch.optim.Adam(self.parameters())        # after

    ``weight_norm``, ``fully_shard`` and a replaced head make new parameters: apply them before the optimizer is built.

    **When to ignore.** Where a part outside the module joins the loss only later, or two losses are meant to train one
    part by an optimizer each.

    **Limits.** Two optimizers of the same parameters are taken as phases. Foreign tensors that do get a gradient are a
    matter of WD313.

    **Sources.** PyTorch's documentation of ``torch.optim``: parameters have to be the same objects during the run.
    """
    if seen.foreign:
        twins = list(dict.fromkeys(f.twin for f in seen.foreign if f.twin))
        first = seen.foreign[0]
        yield foreign_in_optimizer.alert(
            seen,
            f"optimizer {first.optimizer} holds {len(seen.foreign)} tensors that are not this module's"
            if len(seen.foreign) > 1
            else f"optimizer {first.optimizer} holds a tensor {first.shape} that is not this module's",
            hint="build the optimizer from self.parameters(), after all layers have been made, replaced and wrapped",
            subjects=twins,
            evidence={
                "foreign": len(seen.foreign),
                "same_shape_as_the_module's": len(twins),
                "shape": str(first.shape),
            },
        )
    if seen.aliases:
        one, other = seen.aliases[0]
        yield foreign_in_optimizer.alert(
            seen,
            f"{one} and {other} are two parameters in one memory: each step changes it twice"[:99],
            severity=Severity.WARNING,
            hint="tie the parameter itself, not its data: self.head.weight = self.embedding.weight",
            subjects=[name for pair in seen.aliases for name in pair],
            evidence={"pairs": len(seen.aliases)},
        )
    for pair in sorted(seen.shared, key=lambda s: not s.nested)[:1]:
        yield foreign_in_optimizer.alert(
            seen,
            f"optimizer {pair.first} holds all that trains, the {len(pair.names)} parameters of {pair.second} too"
            if pair.nested
            else f"optimizers {pair.first} and {pair.second} both step {len(pair.names)} parameters in each batch",
            severity=Severity.WARNING if pair.nested else Severity.INFO,
            hint="give each optimizer the parameters of its own part, not self.parameters()"
            if pair.nested
            else "give a shared part to one of them, or sum the losses for one step, unless two updates are meant",
            subjects=pair.names,
            evidence={"shared": len(pair.names), "first": pair.first, "second": pair.second},
        )


@check("WD313", "unregistered-module", Severity.ERROR, LossLeaves)
def unregistered_module(seen: LossLeaves) -> Findings:
    """The loss depends on trainable tensors that no module has registered.

    **What it sees.** The leaves of the first loss's graph, less the module's own parameters. Where they live is found
    by searching the module's attributes: lists, tuples, dicts and plain objects.

    **Why it matters.** They are in no ``parameters()``, no checkpoint and no ``to(device)``; mostly they never train.

    **How to fix.** Register them::

        self.layers = [nn.Linear(8, 8)]                   # before
        self.layers = nn.ModuleList([nn.Linear(8, 8)])    # after; ModuleDict for a dict, nn.Parameter for a tensor

    Layers made inside ``forward`` are new in every step: make them in ``__init__``.

    **When to ignore.** A network kept out of the checkpoint on purpose: put it into eval mode or freeze it, then it is
    not meant.

    **Limits.** The graph of the first loss only; reentrant checkpoints and FSDP2 hide their part. Plain tensors count
    only where they are found in the module: inputs that require a gradient are not meant, nor are networks drawn in the
    step whose gradients it asks for by hand. What an optimizer holds trains and is only noted, as no checkpoint has it.

    **Sources.** PyTorch forum, the most frequent silent fault of hand-written modules.
    """
    lost = [s for s in seen.strangers if not (s.held or s.evaluating) and (s.path or seen.automatic)]
    meant = lost or list(seen.strangers)
    if not meant:
        if seen.hidden:
            yield Skip(seen.hidden)
        return
    made = [s for s in meant if not s.path]
    worst = Severity.ERROR if any(s.parameter for s in lost) else Severity.WARNING if lost else Severity.INFO
    yield unregistered_module.alert(
        seen,
        f"the loss depends on {len(meant)} trainable tensors that no module has registered"
        if len(meant) > 1
        else f"the loss depends on a trainable tensor {meant[0].shape} that no module has registered",
        severity=worst,
        hint=_register(meant),
        subjects=[s.path or f"made in the step {s.shape}" for s in meant],
        evidence={
            "strangers": len(meant),
            "made_in_the_step": len(made),
            "in_an_optimizer": sum(s.held for s in meant),
        },
    )


def _register(strangers: list[Stranger]) -> str:
    first = strangers[0]
    if not first.path:
        return "make the layers in __init__ and keep them as attributes"
    if not first.parameter:
        return "make it an nn.Parameter"
    if "[" in first.path:
        mapping = any(quote in first.path for quote in ("['", '["'))
        return f"keep the layers in nn.{'ModuleDict' if mapping else 'ModuleList'} instead of a plain container"
    return "let the object that holds it be an nn.Module, and keep that as an attribute"


@check("WD314", "without-gradient", Severity.WARNING, Reached, implied_by=("WD109", "WD133", "WD315", "WD506"))
def without_gradient(seen: Reached, *, share: float = LARGE_SHARE) -> Findings:
    """Trainable parameters that an optimizer holds never got a gradient.

    **What it sees.** The presence of gradients over twelve steps of the optimizer, or over the whole of a shorter run.

    **Why it matters.** These parameters do not train. On one device a small spare head is harmless and only noted; a
    large part of the model, or all that an optimizer holds, means a ``detach``, a ``no_grad`` or an unused output, and
    a loss that the first step has computed and not returned was forgotten. DistributedDataParallel stops in step two.

    **How to fix.** Follow the parameter's output to the loss::

        self.head(features.detach())     # before: a left-over of a linear probe
        self.head(features)              # after

    Remove the part, freeze it, or under DDP use ``strategy="ddp_find_unused_parameters_true"``.

    **When to ignore.** Poolers without a loss, a part that joins in later; where the step asks for its number or the
    epoch's, that is only noted until the run ends. Teachers in eval mode, and copies that are written to by hand
    (``load_state_dict``, ``copy_``), are only noted too.

    **Limits.** The presence of a gradient is judged, not its size. Parts used in fewer than one of twelve steps escape
    or are named too early; the alert clears when the gradient comes.

    **Sources.** PyTorch's documentation of DistributedDataParallel, ``find_unused_parameters``.
    """
    if not seen.without:
        return
    training = [m for m in seen.without if not (m.evaluating or m.written)]  # teachers wait on purpose
    elements, idle = (sum(m.numel for m in members) for members in (seen.without, training))
    matrices = sum(m.matrix for m in training)
    large = idle >= share * seen.elements or matrices >= LARGE_MATRICES * max(seen.matrices, 1)
    large |= bool(seen.left_out or seen.idle)
    part, noun = elements / max(seen.elements, 1), "parameters" if len(seen.without) > 1 else "parameter"
    yield without_gradient.alert(
        seen,
        f"no gradient in {seen.attempts:,} steps for {len(seen.without)} {noun}, {part:.0%} of the elements"
        + ("; DDP will stop" if seen.fatal else ""),
        severity=Severity.ERROR if seen.fatal else Severity.WARNING if large and not seen.waits else Severity.INFO,
        hint=f"add to the loss of training_step: {seen.left_out}"
        if seen.left_out
        else 'freeze or remove them, or use strategy="ddp_find_unused_parameters_true"'
        if seen.fatal
        else f"their gradient ends at {seen.cut}: let it go on to the loss, or freeze or remove them"
        if seen.cut
        else "look for detach(), no_grad(), or an output or a loss that is left out; else freeze or remove them",
        subjects=[m.name for m in seen.without],
        evidence={"parameters": len(seen.without), "share": part, "limit": share, "matrices": matrices},
    )


@check("WD315", "frozen-by-mistake", Severity.WARNING, Frozen)
def frozen_by_mistake(seen: Frozen) -> Findings:
    """Nearly everything is frozen, a resume froze again what had been training, or freezing had no effect.

    **What it sees.** Which parameters require a gradient when the first loss is there; which frozen ones an optimizer
    holds, and for which of these it has state of an earlier run. Modules with an attribute ``requires_grad = False``,
    and parameters with ``require_grad``, that train all the same. In manual optimisation also which parameters of an
    optimizer never had a gradient because another one is still toggled after the step.

    **Why it matters.** A frozen parameter in an optimizer is skipped without a word. Resuming after a
    ``BackboneFinetuning`` callback has thawed a backbone leaves it frozen for the rest of the run.

    **How to fix.** Thaw after loading, in ``on_train_start``::

        self.backbone.requires_grad_(True)
        self.backbone.requires_grad = False      # before: an attribute of the module, which freezes nothing
        self.backbone.requires_grad_(False)      # after

    **When to ignore.** Where you resume in order to freeze.

    **Limits.** Adapters, linear probes, bias-only and temperature fine-tuning are taken as meant: nearly everything is
    all but one or two biases of layers whose matrices are frozen, and not one for each matrix.

    **Sources.** lightning 2.6: freezing happens in ``setup``, thawing in an epoch that is not run again after a resume.
    """
    if seen.trained_before:
        yield frozen_by_mistake.alert(
            seen,
            f"{len(seen.trained_before)} parameters had been training before the resume and are frozen now",
            hint="call requires_grad_(True) on them after the checkpoint is loaded, for example in on_train_start",
            subjects=seen.trained_before,
            evidence={"frozen_again": len(seen.trained_before), "trainable": len(seen.trainable)},
        )
    elif seen.in_vain:
        yield frozen_by_mistake.alert(
            seen,
            f"{seen.in_vain[0]} was to be frozen by an attribute that freezes nothing: it trains",
            hint="requires_grad_(False) freezes a module; only parameters have requires_grad, spelled so",
            subjects=seen.in_vain,
            evidence={"frozen_in_vain": len(seen.in_vain), "trainable": len(seen.trainable)},
        )
    elif seen.toggled:
        yield frozen_by_mistake.alert(
            seen,
            f"{len(seen.toggled)} parameters of another optimizer stay frozen: an optimizer is left toggled",
            hint="call untoggle_optimizer(optimizer) at the end of what toggle_optimizer(optimizer) began",
            subjects=seen.toggled,
            evidence={"frozen": len(seen.toggled), "trainable": len(seen.trainable)},
        )
    elif seen.no_graph and seen.parameters and not seen.trainable:
        yield frozen_by_mistake.alert(
            seen,
            f"all {seen.parameters} parameters are frozen: backward will fail",
            severity=Severity.ERROR,
            hint="call requires_grad_(True) on what is to train",
            evidence={"parameters": seen.parameters, "trainable": 0},
        )
    elif 0 < len(seen.trainable) == seen.beside <= min(FEW, seen.matrices - 1):
        yield frozen_by_mistake.alert(
            seen,
            f"only {' and '.join(seen.trainable)} can train: the matrices beside are frozen"[:99],
            hint="call requires_grad_(True) on what is to train; a filter by name may have missed the weights",
            subjects=seen.held or seen.trainable,
            evidence={"frozen_matrices": len(seen.held), "trainable": len(seen.trainable)},
        )
