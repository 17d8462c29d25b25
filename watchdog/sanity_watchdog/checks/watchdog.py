"""The watchdog itself: a check that broke, a run in which nothing was judged."""

from ..alerts import Severity, printable
from ..evidence.watchdog import Closing, OwnFault
from .check import Findings, check


@check("WD001", "watchdog-failed", Severity.INFO, OwnFault)
def watchdog_failed(seen: OwnFault) -> Findings:
    """A part of the watchdog raised; the run went on without it.

    **What it sees.** An exception inside a check, an observer or ``on_alert``. It is reported once, with its traceback,
    and the part is switched off for the rest of the run.

    **Why it matters.** What the part would have found stays unknown, so the verdict is ``incomplete`` instead of
    ``pass``.

    **How to fix.** Nothing is wrong with your run. Please report the traceback from ``watchdog.jsonl``, unless it
    leads into your own ``on_alert``.

    **When to ignore.** Never: silence would look like health.

    **Limits.** A crash of the interpreter itself cannot be reported.

    **Sources.** The third promise of this project: it never takes a run down by itself.
    """
    yield watchdog_failed.alert(
        seen,
        f"{seen.what} raised {seen.error}"[:99],
        hint="mend the function given as on_alert; the run and the checks go on without it"
        if seen.what == "on_alert"
        else "the run is not affected; report the traceback kept in the record",
        subjects=(seen.what,),
        evidence={"traceback": seen.traceback},
    )


@check("WD002", "nothing-judged", Severity.INFO, Closing)
def nothing_judged(seen: Closing) -> Findings:
    """The fit ended before a training step was finished and judged.

    **What it sees.** The number of checks that judged a finished training step by the end of ``fit``, and what the run
    raised. Not told where an alert of severity ERROR explains the end.

    **Why it matters.** A run that ends before its first step, or a selection that fits nothing, would otherwise look
    like a healthy one. The verdict is ``incomplete``.

    **How to fix.** Where the run raised, mend that. Else train for at least one batch, and look at the list of skipped
    checks and their reasons.

    **When to ignore.** Where a fit of zero batches is meant.

    **Limits.** Says nothing about single checks; the closing lines count those.

    **Sources.** A watchdog that never woke up also keeps quiet.
    """
    if not seen.judged:
        raised = f"raised {printable(seen.raised, 40)}" if seen.raised else ""
        message = f"the run {raised or 'ended'} before its first training step was finished"
        hint = "train at least one batch with the watchdog attached"
        if seen.batches:
            message = f"no check came to a verdict in {seen.batches} batches and {seen.attempts} optimizer steps"
            hint += ", and look at the skipped checks' reasons"
        if raised:
            message = f"no check came to a verdict before the run {raised}" if seen.batches else message
            hint = "mend that error first: it is the run's own, and nothing could be judged before it"
        evidence = {"batches": seen.batches, "attempts": seen.attempts}
        yield nothing_judged.alert(seen, message, hint=hint, evidence=evidence)
