"""Targets that a step in manual optimisation makes for one of several players, such as a discriminator."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..evidence.base import Evidence
from ..evidence.data import MadeTargets
from .calls import LossCall
from .holding import ids_held_by
from .loss_kinds import BINARY_LOSSES
from .moment import Moment
from .nodes import MOST, nodes
from .objective import UNMIXED
from .observer import Observer, in_samples, is_plain

SHORT = 6
"""Operations between the last layer and the loss."""
SAMPLES = 24
"""Samples looked at."""


@dataclass
class _Player:
    """What one optimizer's parameters were trained towards: size, smallest and largest target of each backward.

    ``several``: by more than one loss call.
    """

    seen: list[tuple[int, float, float]] = field(default_factory=list)
    lines: set[str] = field(default_factory=set)
    several: bool = False
    over: bool = False


class PlayerTargetsObserver(Observer):
    """Follows the binary losses of backward passes that reach the parameters of one optimizer alone."""

    codes = ("WD110",)

    def __init__(self) -> None:
        self._players: dict[int, _Player] = {}
        self._looks = 0

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        several = not at.run.automatic and len(at.run.optimizers) > 1
        if not several or at.trace is None or at.stage != "train" or self._looks >= SAMPLES * len(at.run.optimizers):
            return
        self._looks += 1
        behind = list(nodes(loss))
        if len(behind) >= MOST:
            return
        reached = {id(v) for node in behind if (v := getattr(node, "variable", None)) is not None}
        players = (i for i, o in enumerate(at.run.optimizers) if reached and reached <= ids_held_by(o))
        player = next(players, -1)
        if player >= 0 and not self._players.setdefault(player, _Player()).over:
            calls = [c for c in at.trace.calls if getattr(c.value, "grad_fn", None) in set(behind)]
            self._ask(at, self._players[player], calls, reached)

    def _ask(self, at: Moment, player: _Player, calls: list[LossCall], reached: set[int]) -> None:
        first = not player.seen
        if not calls or not all(_is_answered(c, reached) and (not first or (c.followed and c.outside)) for c in calls):
            player.over = True
            return
        player.lines |= {call.where for call in calls}
        player.several |= len(calls) > 1 or len(player.lines) > 1
        pairs = torch.stack([torch.stack(torch.aminmax(call.target.detach())).float() for call in calls])
        size, where, name, tags = sum(c.target.numel() for c in calls), calls[0].where, calls[0].name, at.tags()

        def read(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            low, high = float(values["targets"].min()), float(values["targets"].max())
            player.seen.append((size, low, high))
            player.over |= low != high
            if player.several and not player.over:
                yield MadeTargets(path=name, where=where, batches=tuple(player.seen), **tags)

        at.ask({"targets": pairs}, read)


def _is_answered(call: LossCall, reached: set[int]) -> bool:
    """Is it a binary loss straight on a trained layer's outputs, which a bias can answer?"""
    if call.name not in BINARY_LOSSES or not (is_plain(call.target) and is_plain(call.input)):
        return False
    node = call.input.grad_fn
    for _ in range(SHORT):
        if node is None or not node.name().startswith(UNMIXED):
            break
        node = node.next_functions[0][0]
    made = node is not None and node.name().startswith(("Addmm", "Convolution"))
    return made and any(id(getattr(n, "variable", None)) in reached for n, _ in node.next_functions if n is not None)
