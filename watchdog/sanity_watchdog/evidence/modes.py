"""Training and evaluation modes, dropout, and the statistics of normalisation layers."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class Resting:
    """A module in eval mode whose parameters are being trained; the outermost one of its kind.

    Attributes:
        name: its name; empty for the LightningModule itself.
        kind: its class.
        layers: those in it whose behaviour the mode changes, each ``"name (Kind)"``.
        alone: a single layer, switched off while everything around it trains.
        flipped: it was seen in training mode before.
        override: class of it, or of a module around it, that has a ``train`` of its own; empty for none.
        fresh: a normalisation layer whose statistics, weight and bias are still those that it was made with.
    """

    name: str
    kind: str
    layers: tuple[str, ...] = ()
    alone: bool = False
    flipped: bool = False
    override: str = ""
    fresh: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainingModes(Evidence):
    """Modes in which an optimizer's parameters got their gradients.

    Attributes:
        resting: modules in eval mode that the optimizer trains.
        modules: modules that the optimizer trains.
        since: optimizer step at which the first flip was noticed; None where none was.
        targets: did the targets of a loss have a gradient in the first step, as those of a teacher that is not frozen?
    """

    resting: tuple[Resting, ...]
    modules: int
    since: int | None = None
    targets: bool = False


@dataclass(frozen=True, kw_only=True)
class DropoutCall:
    """Dropout that dropped something while its module was in eval mode.

    Attributes:
        function: what was called.
        rate: share of the values that it drops.
        owner: class whose code called it, or the file.
        where: the caller's ``file:line``.
        attention: it is dropout inside attention, which has a probability and no flag.
        meant: the calling module is in training mode although the model is not, as for Monte Carlo dropout, or the line
            says ``training=True``.
    """

    function: str
    rate: float
    owner: str
    where: str
    meant: bool = False
    attention: bool = False


@dataclass(frozen=True, kw_only=True)
class Dropouts(Evidence):
    """Dropout in a model.

    Attributes:
        rates: name and probability of each dropout layer; empty where only calls were looked at.
        calls: calls in the first validation batch that dropped something in eval mode; None where not looked at.
        drops: function, probability and line of calls in the first training step, the layers' own left out.
        outputs: losses in that step whose predictions are dropped behind the last layer: function, probability, line.
    """

    rates: tuple[tuple[str, float], ...] = ()
    calls: tuple[DropoutCall, ...] | None = None
    drops: tuple[tuple[str, float, str], ...] = ()
    outputs: tuple[tuple[str, float, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """One normalisation layer at one step.

    Attributes:
        name: the layer.
        shift: median over channels of |batch mean - running mean| in standard deviations of the batch.
        spread: median over channels of running variance / batch variance.
        rows: batch size, of all calls of the step together.
        momentum: the layer's; None for a cumulative average.
        updates: batches that its statistics have seen.
    """

    name: str
    shift: float
    spread: float
    rows: int
    momentum: float | None
    updates: int


@dataclass(frozen=True, kw_only=True)
class RunningStatistics(Evidence):
    """Running statistics against the batch's own, over the last samples.

    Attributes:
        samples: the layers at each sample, oldest first.
        forgotten: layers in eval mode and without a gradient whose weights move while their statistics stand still,
            beside such as learn: averages of a network whose buffers are left behind.
        evaluated: layers that took in a validation batch, while the whole module was in training mode.
    """

    samples: tuple[tuple[Normalisation, ...], ...]
    forgotten: tuple[str, ...] = ()
    evaluated: tuple[str, ...] = ()
