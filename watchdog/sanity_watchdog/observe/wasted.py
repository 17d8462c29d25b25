"""Backward passes whose gradients are cleared before any step has used them. Looks at no value, only at the host."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ..evidence.gradients import Discarded
from .holding import held_by
from .moment import Moment
from .names import parameter_names
from .nodes import MOST as MOST_NODES
from .nodes import nodes
from .observer import Observer, is_plain
from .run import Run
from .sampling import SETTLED
from .scaler import inner
from .site import user_line

MOST = 8
"""Parameters of each optimizer that are looked at."""
WALKS = 16
"""Graphs that are walked at most: those of backward passes after the first one that was in vain."""
NAME = "sanity_watchdog.wasted"


@dataclass
class _Player:
    """An optimizer.

    Attributes:
        steps: attempts so far.
        stepped: one of them was in this batch.
        vain: the last backward since its last step that was in vain.
        times: successive steps before which there was one.
    """

    number: int
    kind: str
    parameters: list[Tensor]
    steps: int = 0
    stepped: bool = False
    vain: "_Pass | None" = None
    times: int = 0

    def gradients(self) -> list[tuple[int, int]]:
        """Which gradients there are, and how often each has been written to."""
        return [(id(p.grad), p.grad._version) for p in self.parameters if p.grad is not None]

    def weights(self) -> list[tuple[int, int]]:
        return [(p.data_ptr(), p._version) for p in self.parameters]


@dataclass(eq=False)
class _Pass:
    """A backward pass.

    Attributes:
        players: optimizers whose gradients it changed, with their weights then.
        left: those of them whose gradients nobody has cleared since.
        late: one of them had stepped in this batch before.
        alone: a graph of its own, that ends in parameters of the optimizers only.
    """

    players: dict[int, list[tuple[int, int]]]
    left: set[int]
    late: bool
    alone: bool
    where: str


class WastedWatch(Observer):
    """Follows each backward of manual optimisation to the step that uses it, in the first batches.

    Gradients that are read by hand are told from those that nobody reads by what else is done with them: weights move
    before they are cleared (sharpness-aware steps), the graph has other leaves (adversarial inputs), or shares its
    nodes with another backward (one gradient per task).
    """

    codes = ("WD217",)

    def start(self, run: Run, at: Moment) -> None:
        held = {i: list(held_by(o)) for i, o in enumerate(run.optimizers)}
        self._off = run.automatic or not all(is_plain(p) and not p.is_inference() for h in held.values() for p in h)
        self._own = {id(p) for h in held.values() for p in h}
        self._players = {id(o): _Player(i, type(o).__name__, held[i][:MOST]) for i, o in enumerate(run.optimizers)}
        self._names = parameter_names(run.module)
        self._open: list[_Pass] = []
        self._before: dict[int, list[tuple[int, int]]] = {}
        self._walks = -1
        self._alone, self._where = False, ""

    def batch(self, at: Moment, batch: Any) -> None:
        left_toggled = bool(getattr(at.run.module, "_param_requires_grad_state", None))  # the matter of WD315
        self._off |= at.batch >= SETTLED or left_toggled
        for player in self._players.values():
            player.stepped = False

    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if self._off:
            return
        self._settle()
        self._before = {i: player.gradients() for i, player in self._players.items()}
        if 0 <= self._walks < WALKS:
            self._walks += 1
            self._alone, self._where = self._is_alone(loss), user_line()
        else:
            self._alone = False

    def after_backward(self, at: Moment) -> None:
        if self._off:
            return
        filled = {i: p.weights() for i, p in self._players.items() if p.gradients() != self._before.get(i)}
        late = any(self._players[i].stepped for i in filled)
        self._open.append(_Pass(filled, set(filled), late, self._alone, self._where))

    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        number = id(inner(optimizer))
        player = self._players.get(number)
        if self._off or player is None:
            return
        self._settle()
        cut_off = not player.gradients()  # what came before was meant for it, and never reached it: WD314's matter
        self._open = [] if cut_off else [p for p in self._open if number not in p.left]
        if player.steps:
            player.times = player.times + 1 if player.vain else 0
        if player.vain and player.times and player.gradients():
            at.emit(
                Discarded(
                    optimizer=player.number,
                    kind=player.kind,
                    wasted=player.times,
                    early=player.vain.late,
                    where=player.vain.where,
                    parameters=tuple(self._names.get(id(p), "?") for p in player.parameters),
                    **at.tags(),
                )
            )
        player.steps += 1
        player.stepped, player.vain = True, None

    def _settle(self) -> None:
        """Finds backward passes all of whose gradients are gone."""
        for one in self._open:
            for i in [i for i in one.left if not self._players[i].gradients()]:
                one.left.discard(i)
                self._off |= self._players[i].weights() != one.players[i]
            if one.players and not one.left and one.alone:
                if all(self._players[i].steps for i in one.players):  # one that never steps is another matter
                    for i in one.players:
                        self._players[i].vain = one
            elif one.players and not one.left:
                self._walks = max(self._walks, 0)
        self._open = [one for one in self._open if one.left]

    def _is_alone(self, loss: Tensor) -> bool:
        count = 0
        for node in nodes(loss):
            count += 1
            if hasattr(node, "variable"):
                if id(node.variable) not in self._own:
                    return False
            elif NAME in node.metadata:
                self._off = True  # gradients of parts of one step, each looked at by itself
                return False
            else:
                node.metadata[NAME] = True
        return count < MOST_NODES
