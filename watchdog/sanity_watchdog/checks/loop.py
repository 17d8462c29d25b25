"""The loop: steps that update nothing, graphs that stay, steps that hang, losses divided twice."""

from ..alerts import Severity
from ..evidence.loop import DividedLoss, GraphsKept, Progress, Stall
from .check import Findings, Skip, check

NOTHING_RETURNED = 64
"""Batches from the first on without a loss, in automatic optimisation: a replay buffer may be filled first."""
SILENT_BATCHES = 16
"""Batches of a whole epoch after which manual optimisation without a backward pass or a step is told."""
SILENT_LONG = 512
"""The same inside a long epoch: reinforcement learning may fill its memory first."""
SUMMED_EPOCHS, SUMMED_BATCHES = 4, 128
"""Epochs and batches over which gradients may be summed up for one step, counted across epochs."""
FEWEST = 2
"""Batches of a whole fit that are judged at its end; with backward passes as many as of an epoch, which may all
belong to one accumulated step."""
LATE = 0.5
"""Share of the planned fit after which an optimizer that has not stepped is late for a warm-up of the others."""

KEPT = 8
"""Marked graphs that must all be alive: fewer may be kept on purpose, such as the last few losses."""
KEPT_SPAN = 500
"""Optimizer steps over which graphs must pile up within one epoch; below that, a list cleared at the end of each
epoch costs little and is common."""

EXACT = 1e-3
"""Relative error of a quotient of float32 losses; half precision does not get there, and stays quiet."""


@check("WD506", "step-without-update", Severity.ERROR, Progress, implied_by=("WD511",))
def step_without_update(seen: Progress) -> Findings:
    """Batches go by and no optimizer step follows from them.

    **What it sees.** Batches, backward passes and optimizer steps. In automatic optimisation: no loss was returned in
    a whole epoch of at least 16 batches, in the first 64 batches, or in the whole fit. In either: no optimizer step in
    a whole epoch of at least 16 batches, in 512 batches, or in the whole fit. Gradients that nobody clears may be
    summed up for one step across epochs: there four epochs of together 128 batches take the place of the one.

    As a WARNING: there is no optimizer at all, no configured optimizer steps although the weights change, or one of
    several never steps although its parameters had a gradient at each look. The latter is an INFO in the first half of
    the fit, since one may join in later, and in fewer than 512 batches where nobody clears these gradients. Also as a
    WARNING: a run that had stepped does so no more in 512 batches, or in 128 with four epochs or the end of the fit
    among them, and in four times the batches that it usually took for a step, while backward passes go on or no loss is
    returned (not at the end alone).

    **Why it matters.** Lightning skips a batch whose ``training_step`` returns None without a word. Metrics are logged,
    the progress bar moves, and no parameter ever changes.

    **How to fix.** ::

        # before
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        # after
        return loss

    In manual optimisation call ``self.manual_backward(loss)`` and ``optimizer.step()`` for each update.

    **When to ignore.** Where the optimizer is only there for its checkpoint.

    **Limits.** A run without optimizers is told at its end, where gradients were computed and no parameter moved;
    another one is skipped. A backward pass that is not Lightning's is seen by its steps only. One of several optimizers
    that stops later is not told, nor is manual optimisation that stops its backward passes as well: both are common
    phases of a plan.

    **Sources.** Lightning's automatic optimisation: "returning None skips the training batch".
    """
    whole = seen.ended and seen.batches >= FEWEST
    if not seen.optimizers:
        if not (whole and seen.automatic and seen.backwards) or seen.moved:
            yield Skip("the run has no optimizer")
            return
        yield step_without_update.alert(
            seen,
            f"{seen.backwards:,} backward passes and no optimizer: nothing is updated",
            severity=Severity.WARNING,
            hint="return the optimizer from configure_optimizers",
            evidence={"batches": seen.batches, "backwards": seen.backwards},
        )
        return
    silent = seen.batches >= (SILENT_BATCHES if seen.epochs else NOTHING_RETURNED)
    if seen.automatic and not seen.backwards and (whole or silent):
        yield step_without_update.alert(
            seen,
            f"training_step returned no loss in all of {seen.batches:,} batches: nothing is updated",
            hint="return the loss from training_step",
            evidence={"batches": seen.batches, "backwards": 0},
        )
        return
    if seen.backwards:
        whole = seen.ended and seen.batches >= SILENT_BATCHES
    late = seen.batches >= (SILENT_BATCHES if seen.epochs else SILENT_LONG)
    if seen.summing and not seen.moved:
        over = seen.epochs >= SUMMED_EPOCHS and seen.batches >= SUMMED_BATCHES
        late = over or seen.batches >= SILENT_LONG
    if (whole or late) and not seen.steps and not seen.attempts:
        if seen.moved:
            yield step_without_update.alert(
                seen,
                f"no step of the configured optimizers in {seen.batches:,} batches, yet something changes the weights",
                severity=Severity.WARNING,
                hint="step the optimizers of configure_optimizers; others are in no checkpoint and lose their state",
                evidence={"batches": seen.batches, "backwards": seen.backwards, "attempts": seen.attempts},
            )
            return
        did = f"{seen.backwards:,} backward passes" if seen.backwards else "no manual_backward"
        yield step_without_update.alert(
            seen,
            f"{did} and no optimizer step in {seen.batches:,} batches: nothing is updated",
            hint=_step_hint(seen),
            evidence={"batches": seen.batches, "backwards": seen.backwards, "attempts": seen.attempts},
        )
    elif _stopped(seen):
        did = "no optimizer step in the last {:,} batches, though backward passes go on"
        hint = "look at the condition before optimizer.step(): it is true no more"
        if seen.silent:
            did = "training_step returned no loss in the last {:,} batches: nothing is updated any more"
            hint = "look at the condition on which it returns None: a loss that is NaN, or a count"
        yield step_without_update.alert(
            seen,
            did.format(seen.stopped),
            severity=Severity.WARNING,
            hint=hint,
            evidence={"batches": seen.batches, "stopped": seen.stopped},
        )
    elif (
        seen.idle
        and max(seen.attempts, seen.steps) >= SILENT_BATCHES
        and (seen.ended or seen.epochs or seen.batches >= SILENT_LONG)
    ):
        which = f"optimizer {seen.idle[0]}" if len(seen.idle) == 1 else f"{len(seen.idle)} of the optimizers"
        late = (seen.ended or seen.share >= LATE) and (seen.cleared or seen.batches >= SILENT_LONG)
        yield step_without_update.alert(
            seen,
            f"{which} never stepped in {seen.batches:,} batches, though its parameters get gradients",
            severity=Severity.WARNING if late else Severity.INFO,
            hint="call its step() after manual_backward, or freeze its parameters until it joins in",
            subjects=[f"optimizer {i}" for i in seen.idle],
            evidence={"batches": seen.batches, "backwards": seen.backwards, "attempts": seen.attempts},
        )


def _stopped(seen: Progress) -> bool:
    """Does a run that had stepped step no more, though it goes on? An accumulated step is due at each epoch's end."""
    if seen.automatic and not seen.stopped_epochs and not seen.silent:
        return False
    over = seen.stopped_epochs >= SUMMED_EPOCHS or (seen.ended and not seen.silent)
    return seen.stopped >= SILENT_LONG or (over and seen.stopped >= SUMMED_BATCHES)


def _step_hint(seen: Progress) -> str:
    if seen.automatic:
        return "let optimizer_step call optimizer.step(closure=optimizer_closure)"
    if seen.scaled:
        return "call scaler.step(optimizer); if it is called it skips every step: look for gradients that overflow"
    if seen.summing and seen.epochs and seen.per_epoch < seen.batches:
        return f"call optimizer.step(); a condition before it is never true in epochs of {seen.per_epoch:,.0f} batches"
    if seen.backwards:
        return "call optimizer.step() in training_step; look at the condition before it, if there is one"
    return "call manual_backward and optimizer.step()"


@check("WD509", "growing-graph", Severity.WARNING, GraphsKept)
def growing_graph(seen: GraphsKept) -> Findings:
    """Autograd graphs of past steps are kept alive.

    **What it sees.** At sampled steps a marker is put on nodes of the loss's graph, which dies with the node. An alert
    needs all of at least 8 marked graphs alive: after an epoch has ended, over 500 steps within one, or at the end.

    **Why it matters.** Each kept graph holds tensors and nodes: memory grows from step to step until the run dies, and
    a sum of losses grows slower with every step.

    **How to fix.** ::

        self.losses.append(loss)            # before
        self.losses.append(loss.detach())   # after

    **When to ignore.** Where past graphs are differentiated through on purpose, such as in meta-learning.

    **Limits.** Lists that are cleared at the end of a short epoch stay quiet. Graphs inside compiled regions are seen
    by their outputs only.

    **Sources.** PyTorch FAQ, "My model reports out of memory": do not accumulate history across the training loop.
    """
    outlived = seen.epochs >= 1 or seen.ended or seen.span >= KEPT_SPAN
    if seen.marked >= KEPT and seen.alive == seen.marked and outlived:
        yield growing_graph.alert(
            seen,
            f"the graphs of all {seen.marked} marked steps are still alive, the oldest {seen.span:,} steps old",
            hint="keep loss.detach() or loss.item() instead of the loss; detach what is carried to the next step",
            evidence={"alive": seen.alive, "marked": seen.marked, "span": seen.span},
        )


@check("WD510", "stalled-step", Severity.WARNING, Stall)
def stalled_step(seen: Stall) -> Findings:
    """No batch has ended for a long time.

    **What it sees.** A timer beside the run. A stall is 5 minutes or 20 times the median batch, whichever is longer,
    without the end of a batch (30 minutes before the first one, which may compile). Within validation, which has no
    such beat, the innermost frame must also stand still all the time.

    **Why it matters.** A run that waits for a lost worker, a lock or another rank costs money all night. Where the main
    thread stands is the first question, and is printed at once.

    **How to fix.** Look at the frame that is named: a dataloader's queue means the workers, a collective means that
    another rank has not arrived.

    **When to ignore.** Where single batches are known to take that long.

    **Limits.** Nothing is interrupted. Native code shows as the Python line that called it.

    **Sources.** ``sys._current_frames``; PyTorch's ``faulthandler`` advice for hanging dataloaders.
    """
    if seen.seconds >= seen.limit:
        usual = f"; the median batch takes {seen.median:.3g} s" if seen.median else ""
        yield stalled_step.alert(
            seen,
            f"no batch has ended for {seen.seconds:,.0f} s (limit {seen.limit:,.0f} s){usual}",
            hint="look at the frame: a queue means dataloader workers, a collective means another rank",
            subjects=(seen.place,) if seen.place else (),
            evidence={"seconds": seen.seconds, "limit": seen.limit, "stack": " < ".join(reversed(seen.stack))},
        )


@check("WD512", "divided-twice", Severity.WARNING, DividedLoss)
def divided_twice(seen: DividedLoss) -> Findings:
    """The loss is divided by the accumulation, by which Lightning divides it as well.

    **What it sees.** With ``Trainer(accumulate_grad_batches=k)`` or a ``GradientAccumulationScheduler``: the first loss
    that ``training_step`` returned with this k is exactly 1/k of what its loss functions gave, or 1/k of a sum of terms
    one of which is a loss function's, or such terms divided by k one by one. A WARNING where the size of the gradients
    matters (plain gradient descent, clipping), an INFO for optimizers that divide it out, such as Adam.

    **Why it matters.** Gradients are k times too small: so are the steps of SGD, a clipping norm is never reached, and
    logged losses are k times too small as well.

    **How to fix.** ::

        return loss / self.accumulate    # before
        return loss                      # after: the Trainer divides

    **When to ignore.** Where the loss is meant to weigh just that much.

    **Limits.** Half a squared error, or half of several losses, is common and not told from this for k = 2, nor is the
    mean of k losses, or one whose weights add up to k. Sums of terms are seen in a run's first steps only. Manual
    optimisation, where dividing is right, is not judged.

    **Sources.** Lightning's automatic optimisation: the closure's loss is divided by ``accumulate_grad_batches``.
    """
    k = seen.accumulate
    halves = k == 2 and (seen.calls > 1 or not seen.classifies)
    calls = abs(seen.share * k - 1) < EXACT and not halves and seen.calls % k != 0
    terms = abs(seen.scale * k - 1) < EXACT and k > 2 and not abs(seen.weight / k - 1) < EXACT
    each = seen.each and k > 2 and not abs(seen.scale * k - 1) < EXACT
    if not calls and not terms and not each:
        return
    yield divided_twice.alert(
        seen,
        f"training_step returns 1/{k} of its loss, and accumulate_grad_batches={k} divides by {k} again",
        hint="return the loss itself: Lightning divides by accumulate_grad_batches",
        severity=None if seen.scales else Severity.INFO,
        where=seen.where,
        evidence={"share": seen.share if calls else seen.scale if terms else 1 / k, "accumulate": k},
    )
