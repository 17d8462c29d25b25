"""Gradients that are not cleared, or thrown away before they are used."""

from ..alerts import Severity, Value
from ..evidence.gradients import ClipCalls, Discarded, Uncleared
from .check import Findings, check

BETWEEN = "call zero_grad() before backward, not between backward and step()"
TOO_LATE = "step() comes before this backward: call it after the last one, zero_grad() before the first one"
EACH_TIME = "zero_grad() once per step, not before each backward: gradients add up until the step"
SUCCESSIVE = 4
"""Times, for gradients that are lost in a row. Healthy loops, with accumulation and alternation, reach 0."""
ALWAYS = 3
"""Calls at one line, all of them too early: the gradients of a single step may be missing on purpose."""


@check("WD216", "uncleared-gradients", Severity.ERROR, Uncleared)
def uncleared_gradients(seen: Uncleared) -> Findings:
    """Gradients pile up over optimizer steps because nobody clears them.

    **What it sees.** For each optimizer, before every backward between two of its steps: are old gradients still there
    and not zero? Four such intervals alert. One moment without them clears an interval, so accumulation over
    micro-batches, alternating optimizers and a discriminator that the generator's backward has filled do not count.

    **Why it matters.** Every step applies the sum of all gradients so far: the run overshoots, oscillates or diverges.

    **How to fix.** Clear them once per step.

    ```python
    self.manual_backward(loss); opt.step()                      # before
    opt.zero_grad(); self.manual_backward(loss); opt.step()     # after
    ```

    **When to ignore.** Where the sum over all steps is what you want.

    **Limits.** Looks at the first ten sampled steps and at eight parameters of each optimizer.

    **Sources.** ``torch.optim.Optimizer.zero_grad``; Lightning's manual optimisation.
    """
    if seen.steps >= SUCCESSIVE:
        yield uncleared_gradients.alert(
            seen,
            f"old gradients were still there in {seen.steps} of {seen.of} steps of {seen.kind} (limit {SUCCESSIVE})",
            hint="call zero_grad() of that optimizer once per step, before backward",
            subjects=seen.parameters,
            evidence={"optimizer": seen.optimizer, "kind": seen.kind, "steps": seen.steps, "of": seen.of},
        )


@check("WD217", "discarded-gradients", Severity.ERROR, Discarded, implied_by=("WD311", "WD312"))
def discarded_gradients(seen: Discarded) -> Findings:
    """What backward computed never reaches the weights.

    **What it sees.** Gradients after backward, before the step and in the step itself: gone, zero, or clipped to less
    than a millionth. An optimizer that clears gradients while it steps is recognised by the weights that it moves. And
    in manual optimisation (a WARNING) a whole backward whose gradients are cleared before any step has used them, at
    four steps in a row: ``step()`` comes before the second loss, or ``zero_grad()`` before each micro-batch.

    **Why it matters.** The run costs what training costs, and learns nothing.

    **How to fix.** Clear gradients before backward, not between backward and the step.

    ```python
    self.manual_backward(loss); opt.zero_grad(); opt.step()     # before
    opt.zero_grad(); self.manual_backward(loss); opt.step()     # after
    ```

    **When to ignore.** In a dry run on purpose; where your own code reads the gradients of that backward. Gradients
    of inputs, steps that move the weights and back, and parts of one graph are recognised as such.

    **Limits.** Looks at the first ten sampled steps (presence: the first 32) and at eight parameters of each optimizer.

    **Sources.** Lightning's order of hooks: ``on_before_optimizer_step`` runs after backward.
    """
    evidence: dict[str, Value] = {"optimizer": seen.optimizer, "kind": seen.kind}
    if max(seen.absent, seen.zeroed) >= SUCCESSIVE:
        times, what = max((seen.absent, "were gone"), (seen.zeroed, "were zero"))
        yield discarded_gradients.alert(
            seen,
            f"gradients of backward {what} at the step, {times} times in a row (limit {SUCCESSIVE})",
            hint=_gone(seen) if times == seen.absent else BETWEEN,
            subjects=seen.parameters,
            evidence={**evidence, "times": times},
        )
    elif seen.wasted >= SUCCESSIVE:
        yield discarded_gradients.alert(
            seen,
            f"gradients of this backward were cleared before any step used them, {seen.wasted} times in a row",
            hint=TOO_LATE if seen.early else EACH_TIME,
            subjects=seen.parameters,
            where=seen.where,
            severity=Severity.WARNING,
            evidence={**evidence, "times": seen.wasted},
        )
    elif seen.cut >= SUCCESSIVE:
        if seen.kept > 0:
            hint = (
                "raise the value that gradients are clipped to"
                if seen.clipped
                else "look for hooks or clipping that scale gradients down"
            )
        else:
            hint = "a hook clears gradients before the update: do not call zero_grad() in on_before_optimizer_step"
        yield discarded_gradients.alert(
            seen,
            f"{seen.kept:.1g} of the gradient's norm was left in the step, {seen.cut} times in a row (limit 1e-06)",
            hint=hint,
            subjects=seen.parameters,
            severity=Severity.WARNING if seen.kept > 0 else Severity.ERROR,
            evidence={**evidence, "kept": seen.kept, "times": seen.cut},
        )


def _gone(seen: Discarded) -> str:
    """The order that explains gradients that are gone."""
    if seen.early:
        return "step() comes before backward in the batch: zero_grad(), then manual_backward(loss), then step()"
    if seen.elsewhere:
        return "the backward before this step fills another optimizer's parameters: are the optimizers swapped?"
    return BETWEEN


@check("WD218", "clipped-too-early", Severity.WARNING, ClipCalls)
def clipped_too_early(seen: ClipCalls) -> Findings:
    """Gradients are clipped before backward has made them.

    **What it sees.** Calls of ``clip_grad_norm_`` inside ``training_step``. It alerts when a line is reached at least
    three times and never finds a gradient but those that the step before has used up already, zeros in their place, or
    none at all.

    **Why it matters.** Nothing is clipped: the one large gradient that clipping is there for goes through.

    **How to fix.** In automatic optimisation backward comes after ``training_step``, so let the Trainer clip; in manual
    optimisation clip between backward and the step.

    ```python
    torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0); return loss      # before
    Trainer(gradient_clip_val=1.0)                                           # after
    self.manual_backward(loss); self.clip_gradients(opt, 1.0); opt.step()    # after, by hand
    ```

    **When to ignore.** Where only the returned norm of the last step is wanted; a ``max_norm`` of 100,000 or more is
    left alone.

    **Limits.** The first six sampled steps. Other ways to clip, steps that are compiled, and automatic optimisation
    that accumulates are not judged.

    **Sources.** Lightning's order of hooks: ``training_step``, ``zero_grad``, backward, step.
    """
    if seen.times >= ALWAYS and seen.early == seen.times:
        what = "no gradient" if seen.none == seen.times else "only gradients that were used already, or zeros"
        yield clipped_too_early.alert(
            seen,
            f"clip_grad_norm_ found {what}, {seen.times} times out of {seen.times}",
            hint="clip after backward: Trainer(gradient_clip_val=...), or between manual_backward and step()",
            where=seen.where,
            evidence={"times": seen.times, "early": seen.early, "none": seen.none},
        )
