"""Scores that one player's last layer gives to what another player makes, and which way the step's losses pull them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..evidence.readings import Unseen
from ..evidence.targets import Alliance
from .calls import LossCall, Marks
from .distances import squares
from .holding import held_by
from .loss_kinds import BINARY_LOSSES, DISTANCES
from .moment import Moment
from .observer import Observer, in_samples
from .operation import Operation
from .operations import CONVOLUTIONS, FACTORS, SUBTRACTS, VIEWS
from .run import Run
from .site import user_line

KEEPS = VIEWS | {
    *("mean", "sum", "add", "cat", "stack", "relu", "leaky_relu", "softplus", "sigmoid", "tanh"),
    *("logsigmoid", "log_sigmoid", "log", "exp", "positive"),
}
MOST = 16
"""Kinds of scores in a loss."""


@dataclass(frozen=True)
class Score:
    """What the last layer of ``judge`` says; of something that ``maker`` made, through which it is ``taught`` or not.

    Players are places of optimizers; ``maker`` -1 for data.
    """

    judge: int
    maker: int = -1
    taught: bool = False


Pulls = Mapping[Score, float]
"""By score: 1 where the loss grows with it, -1 where it falls; NaN where that is not known."""
Wanted = Mapping[Score, float]
"""By score: the number that it is to come to, in a squared or absolute distance."""
Pass = tuple[Pulls, Wanted]
"""A backward pass."""


def owners_of(run: Run | None) -> dict[int, int]:
    """Whose optimizer holds a parameter, by ``id``, where a step by hand has several."""
    if run is None or run.automatic or len(run.optimizers) < 2:
        return {}
    return {id(p): i for i, optimizer in enumerate(run.optimizers) for p in held_by(optimizer)}


class RivalsWatch(Observer):
    """A first step by hand, whose scores were followed."""

    codes = ("WD117",)

    def __init__(self) -> None:
        self._rivals: Rivals | None = None

    def start(self, run: Run, at: Moment) -> None:
        if not owners_of(run):
            at.emit(Unseen(codes=self.codes, reason="no step by hand with several optimizers", **at.tags()))

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if at.trace is not None and at.trace.followers is not None and at.stage == "train":
            self._rivals = at.trace.followers.rivals
            self._rivals.stepped()

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        rivals, self._rivals = self._rivals, None
        if rivals is not None and rivals.is_played:
            at.emit(Alliance(where=rivals.allied(), **at.tags()))


class Rivals:
    """Follows scores through one step.

    Args:
        owners: which player's optimizer holds a parameter, by ``id``.
        calls: the loss calls so far.
    """

    def __init__(self, owners: Mapping[int, int], calls: Sequence[LossCall]) -> None:
        self._owners, self._calls = owners, calls
        self._players: Marks[frozenset[int]] = Marks()
        self._taught: Marks[frozenset[int]] = Marks()
        self._pulls: Marks[Pulls] = Marks()
        self._gaps: Marks[tuple[Score, float]] = Marks()
        self._wanted: Marks[Wanted] = Marks()
        self._rounds: list[list[Pass]] = [[]]
        self._lines: dict[Score, str] = {}

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        inputs, out = op.inputs, op.out
        if not self._owners:
            return
        players, taught = frozenset[int](), frozenset[int]()
        for tensor in inputs:
            owner = self._owners.get(id(tensor))
            players |= frozenset((owner,)) if owner is not None else self._players.get(tensor) or frozenset()
            taught |= frozenset((owner,)) if owner is not None else self._taught.get(tensor) or frozenset()
        if players:
            self._players.put(out, players)
        if taught and out.requires_grad:
            self._taught.put(out, taught)
        if not out.requires_grad:
            return
        if self._is_score(op):
            self._score(self._owner_of(inputs[1]), players, taught, out)
            return
        if self._calls and self._calls[-1].value is out:
            self._call(self._calls[-1])
            return
        known = [self._pulls.get(t) for t in inputs]
        if any(known):
            self._pull(op, known)
        self._want(op)

    def _is_score(self, op: Operation) -> bool:
        if op.name != "linear" and op.name not in CONVOLUTIONS:
            return False
        weight = op.inputs[1] if len(op.inputs) > 1 else None
        return weight is not None and len(weight) == 1 and self._owner_of(weight) >= 0

    def _owner_of(self, weight: Tensor) -> int:
        """The player that a weight, or what a normalised one is made of, belongs to; -1 for none or several."""
        made = self._players.get(weight) or ()
        return self._owners.get(id(weight), next(iter(made)) if len(made) == 1 else -1)

    def _score(self, judge: int, players: frozenset[int], taught: frozenset[int], out: Tensor) -> None:
        others = players - {judge}
        if len(others) > 1:
            return
        maker = next(iter(others), -1)
        score = Score(judge, maker, maker in taught)
        self._pulls.put(out, {score: 1.0})
        self._lines.setdefault(score, user_line())

    def _pull(self, op: Operation, known: list[Pulls | None]) -> None:
        name, args, inputs = op.name, op.args, op.inputs
        if name in KEEPS:
            found = _joined(k or {} for k in known)
        elif name == "neg":
            found = _times(known[0] or {}, -1)
        elif name in SUBTRACTS:
            first = name == "sub" and isinstance(args[0], Tensor) and args[0] is inputs[0]
            signs = [1] + [-1] * (len(known) - 1) if first else [-1, 1][: len(known)]
            found = _joined(_times(k or {}, sign) for k, sign in zip(known, signs, strict=True))
        elif name in FACTORS and len(inputs) == 1 and len(args) > 1 and (name != "div" or args[0] is inputs[0]):
            factor = next((a for a in args[:2] if isinstance(a, (int, float))), 0)
            found = _times(known[0] or {}, math.copysign(1.0, factor)) if factor else {}
        else:
            return
        if 0 < len(found) <= MOST:
            self._pulls.put(op.out, found)

    def _want(self, op: Operation) -> None:
        """Squared distances of scores from one number, and sums of such."""
        name, args, inputs, out = op.name, op.args, op.inputs, op.out
        if (name in SUBTRACTS or name == "add") and len(inputs) == 1 and len(args) > 1:
            number = args[1] if args[0] is inputs[0] else args[0]
            score = self._plain(inputs[0])
            if score is not None and isinstance(number, (int, float)):
                self._gaps.put(out, (score, float(number) if name in SUBTRACTS else -float(number)))
        elif squares(op):
            score = self._plain(inputs[0])
            gap = self._gaps.get(inputs[0]) or (score and (score, 0.0))
            if gap:
                self._wanted.put(out, dict((gap,)))
        elif name in ("mean", "sum", "stack", "add") or (name in FACTORS and len(inputs) == 1):
            wanted = [self._wanted.get(t) for t in inputs]
            if any(wanted):
                self._wanted.put(out, _joined(w or {} for w in wanted))

    def _plain(self, tensor: Tensor) -> Score | None:
        pulls = self._pulls.get(tensor) or {}
        return next(iter(pulls)) if len(pulls) == 1 and next(iter(pulls.values())) > 0 else None

    def _call(self, call: LossCall) -> None:
        scores, target, value = call.input, call.target, call.value
        pulls = self._pulls.get(scores)
        if not pulls or not isinstance(target, Tensor) or not isinstance(value, Tensor) or target.requires_grad:
            return
        answer = _one_value(target)
        if call.name in BINARY_LOSSES and answer != 0.5 and not math.isnan(answer):
            self._pulls.put(value, _times(pulls, -1 if answer > 0.5 else 1))
        elif call.name in DISTANCES and not math.isnan(answer) and (score := self._plain(scores)) is not None:
            self._wanted.put(value, {score: answer})

    def passed(self, loss: Tensor, gradient: Tensor | None = None) -> None:
        """``loss.backward(gradient)`` was called."""
        sign = 1.0 if gradient is None else _sign_of(gradient)
        pulls, wanted = self._pulls.get(loss) or {}, self._wanted.get(loss) or {}
        self._rounds[-1].append((_times(pulls, sign), wanted if sign > 0 else {}) if sign else ({}, {}))

    def stepped(self) -> None:
        """An optimizer is about to use what the backward passes have added up."""
        self._rounds.append([])

    @property
    def is_played(self) -> bool:
        """Were there scores, and several backward passes?"""
        return bool(self._lines) and sum(map(len, self._rounds)) > 1

    def allied(self) -> str:
        """The line of a judge whose scores of what another makes both players pull the same way; empty for none."""
        made = [one for passes in self._rounds for one in passes]
        judged = [([one], one) for one in made]
        judged += [(passes, _both(passes)) for passes in self._rounds if len(passes) > 1]
        for own, said in judged:
            for one in made:
                for score in {**one[0], **one[1]} if all(one is not o for o in own) else ():
                    if score.taught and _is_allied(said, one, score):
                        return self._lines.get(score, "")
        return ""


def _both(passes: Sequence[Pass]) -> Pass:
    """All that a player learns from, where real and made samples have a backward pass each."""
    return _joined(pulls for pulls, _ in passes), _joined(wanted for _, wanted in passes)


def _is_allied(judged: Pass, made: Pass, score: Score) -> bool:
    """Does the judge tell data from what is made, and does the maker want what the judge wants?"""
    data, seen = Score(score.judge), Score(score.judge, score.maker)
    if score in judged[0] or score in judged[1] or seen in made[0] or seen in made[1]:
        return False
    if all(s in judged[0] for s in (data, seen)) and score in made[0]:
        return judged[0][data] == -judged[0][seen] and made[0][score] == judged[0][seen]
    if all(s in judged[1] for s in (data, seen)) and score in made[1]:
        return abs(judged[1][data] - judged[1][seen]) > 0 and made[1][score] == judged[1][seen]
    return False


def _one_value(target: Tensor) -> float:
    """The value of all of them, NaN where they differ."""
    with torch.no_grad():
        low, high = (float(v) for v in torch.aminmax(target.detach().float())) if target.numel() else (0.0, 1.0)
    return low if low == high else math.nan


def _sign_of(gradient: Tensor) -> float:
    """1 or -1 where all of them have that sign and one value, 0 else."""
    value = _one_value(gradient)
    return 0.0 if math.isnan(value) or not value else math.copysign(1.0, value)


def _joined(several: Iterable[Mapping[Score, float]]) -> dict[Score, float]:
    found: dict[Score, float] = {}
    for pulls in several:
        for score, pull in pulls.items():
            found[score] = pull if found.get(score, pull) == pull else math.nan
    return found


def _times(pulls: Pulls, sign: float) -> dict[Score, float]:
    return {score: sign * pull for score, pull in pulls.items()}
