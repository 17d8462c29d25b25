"""What one watched step has shown: its loss calls, and how values came about.

:class:`LossCalls <sanity_watchdog.observe.losses.LossCalls>` puts a :class:`Trace` into ``at.trace`` while a sampled
step runs. Observers after it in the registry may read it in ``output`` (in automatic optimisation the graph is still
whole there, in manual optimisation it may have been freed); it is emptied in ``batch_end``, so keep nothing of it.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from torch import Tensor

from ..evidence.broadcasts import Spread
from ..evidence.detached import Cut
from ..evidence.losses import Origin

if TYPE_CHECKING:
    from .attending import Attending
    from .followers import Followers
    from .operation import Operation
    from .suspects import Seen

Fact = TypeVar("Fact")
BARE = frozenset({str, bytes, int, float, complex, bool, type(None)})
"""Types of values that hold no others."""


class Marks(Generic[Fact]):
    """Facts about tensors by identity. Never keeps a tensor alive."""

    _everyone: ClassVar["weakref.WeakSet[Marks[Any]]"] = weakref.WeakSet()

    def __init__(self) -> None:
        self._facts: dict[int, tuple[weakref.ref[Tensor], Fact]] = {}
        self._everyone.add(self)

    @classmethod
    def let_go(cls) -> None:
        """Forget all facts: ``torch.utils.swap_tensors`` refuses a tensor to which there are weak references."""
        for marks in cls._everyone:
            marks._facts.clear()

    def put(self, tensor: Tensor, fact: Fact) -> None:
        self._facts[id(tensor)] = (weakref.ref(tensor), fact)

    def get(self, tensor: Any) -> Fact | None:
        hit = self._facts.get(id(tensor))
        return hit[1] if hit is not None and hit[0]() is tensor else None


@dataclass(eq=False)
class LossCall:
    """One call of a loss function.

    Attributes:
        name: the function, such as ``cross_entropy``. where: the user's line.
        arguments: as bound to the function's signature, tensors included until the step ends.
        value: what it returned. error: what it raised instead, as text.
        origin: the activation that made its first argument, where that was seen.
        weights: a table of class weights that its values were multiplied by, picked by label.
        head: the weight of the linear or convolutional layer that made its first argument, where that was seen.
        cosine: were the scores made from normalised vectors, or as products of codes that are drawn?
        logs: do they descend from a ``log_softmax``?
        followed: was lineage recorded, so that a missing ``origin`` means something?
        traced: seen while a compiler traced it: shapes and settings only.
        pairs: what gave its input or its target a value for each pair of samples, where the other has one for each.
        outside: do its targets owe nothing to the batch? given: has no parameter gone into
            them, or into its predictions? Both in a followed step only.
        rows: layout of the samples in its target; classes: of the outputs of the last layer in its first argument.
        step: number of optimizer steps taken by this fit before the call.
        flipped: does the step minimise minus its value?
    """

    name: str
    where: str
    arguments: dict[str, Any]
    value: Any = None
    error: str = ""
    origin: Origin | None = None
    weights: Tensor | None = None
    head: Tensor | None = None
    cosine: bool = False
    logs: bool = False
    followed: bool = False
    traced: bool = False
    pairs: Spread | None = None
    outside: bool = False
    given: bool = False
    rows: Tensor | None = None
    classes: Tensor | None = None
    step: int = 0
    flipped: bool = False

    @property
    def input(self) -> Any:
        """Its first argument: scores, log-probabilities or predictions."""
        return next(iter(self.arguments.values()), None)

    @property
    def prediction(self) -> Any:
        """Its first argument, or its targets where only those have a gradient: people swap the two."""
        first, target = self.input, self.target
        swapped = isinstance(target, Tensor) and target.requires_grad and not getattr(first, "requires_grad", True)
        return target if swapped else first

    @property
    def target(self) -> Any:
        """Its targets, or None."""
        return self.arguments.get("target")


@dataclass(frozen=True, eq=False)
class Frontier:
    """A tensor in which data of the batch first met something that has a gradient.

    Attributes:
        operation: the call, such as of ``linear`` or ``conv2d``, with the result and so its place in the graph.
        ids: the integer tensor that an embedding looked up, None elsewhere.
        where: the user's line.
        data: the largest tensor with data that it took.
        rows: layout of the samples in ``data``, where it is known.
    """

    operation: "Operation"
    ids: Tensor | None
    where: str
    data: Tensor
    rows: Tensor | None = None


@dataclass(eq=False)
class Trace:
    """What one step has shown so far, in order of time.

    Attributes:
        followed: True where every eager operation was followed. Else only the loss calls are known, because something
            is compiled or because this is a later sample: ``frontier``, ``obstacles`` and cuts are then empty.
        compiled: is anything compiled in this process?
        calls: the loss calls.
        frontier: where data met the first parameters, with the ids of embeddings.
        joined: where data were added or attached to something that parameters had made of other data.
        obstacles: reasons why the graph must not be run a second time (tensor hooks, checkpointing, offloading).
        spreads: differences of predictions and targets, and products that are averaged, with batch axes spread
            against each other.
        causal: was anything seen that keeps positions from seeing later ones (a causal mask, a one-way recurrence)?
        looks_ahead: do scores depend on later positions of an input that their targets equal? None where not asked.
        suspects: operations that often let positions or samples see each other by mistake.
        drops: calls of dropout functions in training: function, probability, the user's line.
        dropped: a layer's scores that dropout put to zero, and views of them: share and line.
        followers: who follows the operations of a training step. attending: what attention shows.
        read: the last value with history that was read to the host.
        left: were data of the batch read to the host before the first loss call? They may come back unrecognised.
        drawn_at: the first line that drew random numbers of its own, masks of dropout and the like apart.
        probed: did data that want a gradient themselves, such as perturbed copies, or features that were cut off to be
            gone back through by hand, meet parameters?
        asked: tensors, by identity, of which the step asked for gradients by hand.
        distils: did a network's own answers weigh log-probabilities, or did it give some without a gradient?
        holds_on: was something stored subtracted from a matrix that trains, as a penalty on leaving old weights does?
        picked: log-probabilities that were picked by labels, as calls of ``nll_loss`` without a reduction.
        overlaps: lines at which scores straight out of a layer were divided like overlaps of probabilities, and their
            extremes.
        pulled: for each backward pass, the lines that pull trained outputs together where nothing else is in its loss.
        unused: the first operation that makes a new tensor which nobody takes, its line, and: is there an in-place one?
        twice: softmaxes, sigmoids and their logarithms, each with the softmax or sigmoid that had made its argument.
        ends: leaves, by identity, whose gradients end at a place, in order.
        known: tensors made in the step from nothing but parameters, buffers, the batch and what is drawn in it, each
            with its version at that time; negative where something of unknown origin came in.
    """

    followed: bool = False
    compiled: bool = False
    calls: list[LossCall] = field(default_factory=list)
    frontier: list[Frontier] = field(default_factory=list)
    joined: list[Frontier] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    spreads: list[Spread] = field(default_factory=list)
    causal: bool = False
    looks_ahead: bool | None = None
    suspects: "list[Seen]" = field(default_factory=list)
    drops: set[tuple[str, float, str]] = field(default_factory=set)
    followers: "Followers | None" = None
    attending: "Attending | None" = None
    read: Cut | None = None
    left: bool = False
    drawn_at: str = ""
    probed: bool = False
    asked: set[int] = field(default_factory=set)
    distils: bool = False
    holds_on: bool = False
    picked: list[LossCall] = field(default_factory=list)
    overlaps: list[tuple[str, float, float]] = field(default_factory=list)
    pulled: list[tuple[str, ...]] = field(default_factory=list)
    unused: tuple[str, str, bool] | None = None
    twice: list[tuple[Origin, Origin]] = field(default_factory=list)
    dropped: Marks[tuple[float, str]] = field(default_factory=Marks)
    cuts: Marks[Cut] = field(default_factory=Marks)
    ends: dict[Cut, set[int]] = field(default_factory=dict)
    known: Marks[int] = field(default_factory=Marks)

    @property
    def ids(self) -> list[Tensor]:
        """Integer inputs of embeddings, in order of their look-up."""
        return [f.ids for f in self.frontier if f.ids is not None]

    def release(self) -> None:
        """Let go of every tensor."""
        for call in self.calls:
            call.arguments = {k: v for k, v in call.arguments.items() if not isinstance(v, Tensor)}
            call.value = call.head = call.weights = None
        self.picked.clear()
        self.frontier.clear()
        self.joined.clear()
        self.suspects.clear()
        self.followers = self.attending = None
        self.cuts = Marks()
        self.known = Marks()


def all_bare(values: Sequence[Any]) -> bool:
    """Is a list or tuple nothing but text, numbers and None? Told without a step of Python for each of thousands."""
    return type(values) in (list, tuple) and BARE.issuperset(map(type, values))


def tensors_of(value: Any, depth: int = 4) -> Iterator[Tensor]:
    """Tensors in a batch: through mappings, sequences and the attributes of plain objects."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in () if all_bare(value) else value:
            yield from tensors_of(item, depth - 1)
    elif depth and hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        yield from tensors_of(vars(value), depth - 1)
