"""What optimizers remember."""

from ..alerts import Severity
from ..evidence.loop import StateLosses
from .check import Findings, Skip, check
from .loop import SILENT_BATCHES

LOSSES = 3
"""Losses of the state; a change of optimizer, or one deliberate restart, makes one."""
MEMORY = 1000
"""Steps between two losses from which on they are only noted: the memory of Adam's second moments, 1 / (1 - 0.999)."""


@check("WD511", "discarded-state", Severity.WARNING, StateLosses)
def discarded_state(seen: StateLosses) -> Findings:
    """An optimizer loses its momentum or moments again and again.

    **What it sees.** Which optimizers step, by identity, and the step counter in their state (or whether there is one),
    in the first 64 steps, at samples, and where epochs end and begin. Counted are optimizers that were not configured
    and are new each time, and states that are gone or younger than they had been. Three losses are an alert; where they
    are 1,000 steps or more apart they are only noted.

    **Why it matters.** Without its moments Adam takes steps of full size in the sign of each gradient; SGD forgets its
    momentum. An optimizer made in the step is in no checkpoint, and no schedule or precision plugin reaches it.

    **How to fix.** Make it once::

        def training_step(self, batch, batch_idx):
            optimizer = torch.optim.Adam(self.parameters())    # before: a new one in every step
            optimizer = self.optimizers()                      # after: the one of configure_optimizers

    and load or clear an optimizer's state once, not in a hook that runs in every epoch.

    **When to ignore.** Where restarts are the method: some reinforcement learning, ReLoRA, simulated federated rounds.

    **Limits.** SGD without momentum has nothing to lose. In automatic optimisation an optimizer that is made inside an
    ``optimizer_step`` of one's own is not seen; WD506 says that something else moves the weights. Momentum without a
    step counter is followed in the first 64 steps and between epochs only.

    **Sources.** Kingma and Ba, Adam: moments begin at zero and are corrected for it. PyTorch's ``Optimizer.state``.
    """
    lost = seen.made + seen.emptied
    if not seen.own and not (seen.over and seen.batches >= SILENT_BATCHES):
        yield Skip("no optimizer step seen yet")
        return
    if lost < LOSSES:
        return
    steps = seen.attempts if seen.own else seen.batches
    what = f"a new {seen.optimizer} stepped" if seen.made > seen.emptied else f"{seen.optimizer} had lost its state"
    yield discarded_state.alert(
        seen,
        f"{what} {lost} times in {steps:,} steps: momentum and moments began anew",
        severity=Severity.WARNING if steps < MEMORY * lost else Severity.INFO,
        hint="make the optimizer once, in configure_optimizers, and step that one"
        if seen.made > seen.emptied
        else "load or clear the optimizer's state once, not in a hook that runs in every step or epoch",
        evidence={"made": seen.made, "emptied": seen.emptied, "steps": steps, "limit": LOSSES},
    )
