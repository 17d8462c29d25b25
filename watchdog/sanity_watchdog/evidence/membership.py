"""Who holds which parameter, and which of them the loss reaches."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, slots=True)
class Member:
    """A parameter of the module.

    Attributes:
        name: its first name.
        numel: number of elements.
        matrix: has it two dimensions or more?
        evaluating: is the module that registered it in eval mode? written: has anything been written to it since the
            first batch?
    """

    name: str
    numel: int
    matrix: bool
    evaluating: bool = False
    written: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """A trainable tensor that an optimizer holds, that is not the module's, and that has never had a gradient.

    Attributes:
        optimizer: number of the optimizer.
        shape: shape of the tensor.
        twin: name of a parameter of that shape that no optimizer holds; empty for none.
    """

    optimizer: int
    shape: tuple[int, ...]
    twin: str = ""


@dataclass(frozen=True, slots=True)
class Shared:
    """Parameters that two optimizers hold and both step with a gradient in the same batch.

    Attributes:
        first, second: numbers of the optimizers; the first one holds more.
        names: of the parameters.
        nested: does the first one hold everything that trains, and the second one nothing else than a part of it?
    """

    first: int
    second: int
    names: tuple[str, ...]
    nested: bool = False


@dataclass(frozen=True, slots=True)
class Stranger:
    """A trainable leaf of the loss that no module has registered.

    Attributes:
        path: attribute path at which it was found; empty for what the step itself has made.
        shape: its shape.
        parameter: is it an ``nn.Parameter``?
        held: does an optimizer hold it?
        evaluating: is the module it belongs to in eval mode?
    """

    path: str
    shape: tuple[int, ...]
    parameter: bool = True
    held: bool = False
    evaluating: bool = False


@dataclass(frozen=True, kw_only=True)
class Membership(Evidence):
    """After the first gradients.

    Attributes:
        optimizers: number of optimizers. automatic: automatic optimisation?
        trainable: trainable parameters of the module.
        missing: those that got a gradient and are in no optimizer.
        waiting: are these left for a callback to give to the optimizers, which it has not done for any so far?
        foreign: tensors that only an optimizer knows. shared: parameters that several optimizers step.
        aliases: names of pairs of parameters that got gradients, lie in the same memory and are held by optimizers.
    """

    optimizers: int
    trainable: int
    automatic: bool = True
    missing: tuple[Member, ...] = ()
    waiting: bool = False
    foreign: tuple[Foreign, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    shared: tuple[Shared, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LossLeaves(Evidence):
    """Leaves of the first loss's graph.

    Attributes:
        leaves: trainable leaves found.
        strangers: those that are no parameters of the module.
        automatic: automatic optimisation?
        hidden: why a part of the graph could not be seen; empty where all was.
    """

    leaves: int
    strangers: tuple[Stranger, ...] = ()
    automatic: bool = True
    hidden: str = ""


@dataclass(frozen=True, kw_only=True)
class Reached(Evidence):
    """Which trainable parameters that an optimizer holds have had a gradient.

    Attributes:
        attempts: optimizer attempts, of each optimizer at least, that this covers.
        elements: elements of all of them. matrices: how many are matrices.
        without: those that never had a gradient.
        fatal: would DistributedDataParallel stop because of them?
        idle: numbers of the optimizers all of whose parameters are among them, beside others that do get gradients.
        cut: the last operation and line in the first step at which gradients of some of them end.
        left_out: function and line of a loss of theirs that the first step computed and did not return.
        waits: does the step ask for its number or the epoch's, so that they may join in later in this run?
    """

    attempts: int
    elements: int
    matrices: int
    without: tuple[Member, ...] = ()
    fatal: bool = False
    idle: tuple[int, ...] = ()
    cut: str = ""
    left_out: str = ""
    waits: bool = False


@dataclass(frozen=True, kw_only=True)
class Frozen(Evidence):
    """What does not require a gradient when the first loss is there.

    Attributes:
        parameters: number of parameters. matrices: of these, matrices.
        trainable: names of those that require a gradient.
        beside: how many of them are vectors of a layer whose matrix is frozen.
        held: names of frozen matrices that an optimizer holds.
        trained_before: names of frozen parameters for which an optimizer has state from before the resume.
        toggled: names of those frozen since the start that an optimizer holds and that never had a gradient, where an
            optimizer was still toggled after several steps.
        in_vain: names of modules with an attribute ``requires_grad`` that is False, and of parameters with one called
            ``require_grad``, all of which train.
        no_graph: does the loss have no gradient path at all, in automatic optimisation?
    """

    parameters: int
    matrices: int
    trainable: tuple[str, ...]
    beside: int = 0
    held: tuple[str, ...] = ()
    trained_before: tuple[str, ...] = ()
    toggled: tuple[str, ...] = ()
    in_vain: tuple[str, ...] = ()
    no_graph: bool = False
