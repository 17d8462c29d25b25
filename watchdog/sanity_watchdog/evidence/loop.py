"""What the training loop does: steps, metrics, graphs that stay, stalls."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class Progress(Evidence):
    """How many batches led to what.

    Attributes:
        automatic: automatic optimisation?
        optimizers: optimizers of the run.
        batches: training batches that have ended.
        backwards: backward passes that Lightning ran.
        attempts: optimizer steps attempted.
        steps: optimizer steps done.
        epochs: epochs that have ended.
        ended: the fit is over.
        moved: have the optimizers' parameters been written to all the same?
        idle: optimizers that have not stepped yet, though their parameters had gradients whenever they were looked at.
        cleared: has anybody cleared the gradients of one of them between two backward passes?
        share: part of the planned fit that is over; 0 where it has no limit.
        summing: manual optimisation, with gradients that nobody has cleared so far.
        per_epoch: batches of an epoch, infinite where not known.
        stopped: batches up to the last one in which nothing has stepped any more: with a backward pass in each of at
            least two of them that were looked at or, in automatic optimisation, without a loss in each.
        stopped_epochs: epochs that have ended meanwhile.
        silent: was it without a loss?
        scaled: is there a loss scaler, which skips steps by itself?
    """

    automatic: bool
    optimizers: int
    batches: int
    backwards: int
    attempts: int
    steps: int
    epochs: int = 0
    ended: bool = False
    moved: bool = False
    idle: tuple[int, ...] = ()
    cleared: bool = False
    share: float = 0.0
    summing: bool = False
    per_epoch: float = math.inf
    stopped: int = 0
    stopped_epochs: int = 0
    silent: bool = False
    scaled: bool = False


@dataclass(frozen=True, kw_only=True)
class MetricUse:
    """One ``torchmetrics`` object at the start of a validation loop.

    Attributes:
        name: its name in the module.
        kind: its class.
        held: updates that it holds from before this loop.
        trained: updates that training steps have made so far.
        sanity: updates that the sanity check left in it.
        validated: updates that validation loops have made so far.
        computed: its accumulated value was asked for after a loop.
    """

    name: str
    kind: str
    held: int
    trained: int
    sanity: int
    validated: int
    computed: bool


@dataclass(frozen=True, kw_only=True)
class MetricsUsed(Evidence):
    """All metrics of the module at the end of a validation loop."""

    uses: tuple[MetricUse, ...]


@dataclass(frozen=True, kw_only=True)
class GraphsKept(Evidence):
    """How many of the graphs that were looked at are still alive.

    Attributes:
        marked: graphs of earlier steps that were marked.
        alive: of these, graphs that still exist.
        span: optimizer steps from the oldest that is alive to now.
        epochs: epochs that the oldest that is alive has outlived.
        ended: the fit is over.
    """

    marked: int
    alive: int
    span: int
    epochs: int
    ended: bool = False


@dataclass(frozen=True, kw_only=True)
class Stall(Evidence):
    """No batch has ended for long.

    Attributes:
        seconds: since the last one did.
        limit: seconds that were allowed.
        median: seconds that a batch usually takes; 0 where none has ended.
        place: innermost frame of the user's code in the main thread, ``file:line function``.
        stack: the main thread's frames, innermost last.
    """

    seconds: float
    limit: float
    median: float
    place: str
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StateLosses(Evidence):
    """How often an optimizer with a memory of past gradients began without it.

    Attributes:
        optimizer: class of the last one that did.
        made: optimizers that stepped, are new, and are none of those that were configured.
        emptied: times that an optimizer's state was gone, or younger than it had been.
        attempts: optimizer steps attempted. batches: training batches so far.
        own: has any optimizer been stepped through the loop, configured or put in its place?
        over: has an epoch, or the fit, ended?
    """

    optimizer: str
    made: int
    emptied: int
    attempts: int
    batches: int
    own: bool = True
    over: bool = False


@dataclass(frozen=True, kw_only=True)
class DividedLoss(Evidence):
    """A loss of a run that accumulates gradients, beside the loss calls that it is made of.

    Attributes:
        accumulate: batches per optimizer step, by which the loop divides the loss.
        share: the step's loss over the sum of the values of its loss calls.
        scale: by which the sum of its terms is multiplied, where there are several.
        weight: by which they are multiplied one by one, added up.
        each: is each of several terms, not as many as batches, divided by their number?
        calls: how many these are. classifies: are all of them losses of classes or of yes and no?
        scales: does the size of the gradients matter, for plain gradient descent or for clipping?
        where: the user's line.
    """

    accumulate: int
    share: float
    scale: float = 1.0
    weight: float = 1.0
    each: bool = False
    calls: int = 1
    classifies: bool = True
    scales: bool = True
    where: str = ""
