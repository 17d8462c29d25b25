"""The observer of loss calls."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.broadcasts import Difference, Spread
from ..evidence.detached import DetachedLoss
from ..evidence.losses import OverlapLoss, SquashedTwice
from ..evidence.readings import Unseen
from . import token_targets
from .axes import unspread
from .bounded import Numbers, class_axis
from .calls import LossCall, Trace, tensors_of
from .detachment import NO_HISTORY, note_detached
from .distributions import likelihoods
from .hyperparameters import minimises
from .intercept import FollowingMode, Interception, anything_compiled, entry_points
from .label_ledger import LabelLedger
from .labels import asserts_later
from .leaves import seeks_input
from .lineage import Lineage
from .loss_evidence import evidence_of, first_loss, opening, target_range
from .loss_facts import Facts, of_run
from .loss_kinds import DISTANCES
from .loss_statistics import head_scale, labels, measure, scores_alone
from .moment import Moment
from .names import parameter_names
from .objective import custom_function
from .observer import Observer, in_samples, is_plain
from .run import Run
from .sampling import DENSE
from .telling import Telling

FOLLOWED = 2
"""Training batches before the first optimizer step in which every operation is followed (about twice the time each)."""
JUDGED = ("WD101", "WD102", "WD103", "WD104", "WD105", "WD106", "WD107", "WD108")


class LossCalls(Observer):
    """Sees every call of a loss function in a sampled step, at the moment of the call.

    In the first steps all operations are followed (see ``at.trace``); later samples see the loss calls only.
    """

    codes = ("WD1", "WD512")

    def __init__(self) -> None:
        self._steps = 0
        self._followed = 0
        self._opened = False
        self._compiled: bool | None = None
        self._names: dict[int, str] = {}
        self._pending: list[tuple[LossCall, Numbers]] = []
        self._by_hand: tuple[LossCall, Numbers] | None = None
        self._labels = LabelLedger()
        self._logs: dict[tuple[str, str], bool] = {}
        self._looked: dict[tuple[str, str], int] = {}
        self._batch_size = 0
        self._has_ids = False
        self._interception: Interception | None = None
        self._telling: Telling | None = None
        self._sought: set[str] = set()

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        if at.trace is not None:
            at.trace.release()
        if self._compiled is None or not self._opened:
            self._compiled = anything_compiled(at.run.module)
        training = at.stage == "train"
        self._batch_size = next((t.size(0) for t in tensors_of(batch) if t.ndim), 0)
        follow = at.sync and not self._compiled and (not training or self._followed < FOLLOWED)
        self._followed += follow and training
        at.trace = Trace(followed=follow, compiled=self._compiled)
        self._interception = Interception(
            at.trace, lambda call: self._look(at, call), self._steps, lambda call: self._foresee(at, call)
        )
        self._by_hand = None
        if follow:
            mode = FollowingMode(self._interception, Lineage(at.trace, batch, training, self._score, at.run))
            followers, signed = at.trace.followers, minimises(at.run.optimizers)
            self._telling = Telling(followers, at.trace, signed) if followers is not None else None
            return (mode,) if followers is None or not signed else (likelihoods(self._interception, followers), mode)
        return (entry_points(self._interception),)

    def _foresee(self, at: Moment, call: LossCall) -> None:
        """Explain labels out of range before the call: on a GPU it asserts later, and nothing can be read any more."""
        scores, target = call.input, call.target
        if not at.sync or call.name not in ("cross_entropy", "nll_loss") or not asserts_later(target):
            return
        k = scores.shape[class_axis(scores)]
        ignore = call.arguments.get("ignore_index", -100)
        with torch.no_grad():
            values = {name: float(number) for name, number in labels(target.detach().long(), ignore).items()}
        if values["valid"] and not (values["label_low"] >= 0 and values["label_high"] < k):
            at.emit(target_range(self._facts(call, None, at.run, False), values | {"k": k}, at.tags()))

    def _look(self, at: Moment, call: LossCall) -> None:
        """Measure a call at its moment: what it was given may be changed in place later."""
        if call.name in DISTANCES and isinstance(call.input, Tensor) and isinstance(call.target, Tensor):
            shapes = [tuple(t.shape) if call.followed else unspread(t) for t in (call.input, call.target)]
            spread = call.pairs or Spread(call.where, shapes[0], shapes[1], call.name)
            at.emit(Difference(function=spread.operation, spread=spread, **at.tags()))
        if at.stage == "train" and not call.error and not getattr(call.value, "requires_grad", False):
            return  # a metric
        site = call.name, call.where
        if call.followed:
            self._logs[site] = call.logs
        else:
            call.logs = self._logs.get(site, False)
        if at.attempt > DENSE and self._looked.get(site) == at.batch - 1:
            return  # the second of a pair of samples sees the same
        self._looked[site] = at.batch
        given = [t for a in call.arguments.values() for t in tensors_of(a, 1)]
        strange = next((type(t).__name__ for t in given if not is_plain(t)), "")
        if call.traced or strange:
            reason = "compiled loss" if call.traced else f"{call.name} of a {strange}"
            at.emit(Unseen(codes=JUDGED, reason=reason, **at.tags()))
            return
        with torch.no_grad(), torch.autocast(given[0].device.type, enabled=False):
            numbers = measure(call, full=at.sync)
            if at.sync and call.head is not None and is_plain(call.head):
                numbers["head_scale"] = head_scale(call.head)
        self._pending.append((call, numbers))

    def _score(self, call: LossCall) -> None:
        """Scores that go into a ``log_softmax``: the last of them tell of a loss written by hand."""
        if self._opened or self._steps or not is_plain(call.input):
            return
        with torch.no_grad(), torch.autocast(call.input.device.type, enabled=False):
            numbers = scores_alone(call.input.detach(), call.arguments["dim"])
            if call.head is not None and is_plain(call.head):
                numbers["head_scale"] = head_scale(call.head)
        self._by_hand = call, numbers

    def output(self, at: Moment, output: Any) -> None:
        interception, self._interception = self._interception, None
        if interception is not None:
            interception.tell()
        loss = output.get("loss") if isinstance(output, Mapping) else output
        loss = loss if isinstance(loss, Tensor) else None
        if at.stage == "train" and at.run.automatic and loss is not None:
            note_detached(at, loss)
        self._ask(at, loss)
        trace = Trace() if at.trace is None else at.trace
        for where, low, high in trace.overlaps:
            at.emit(OverlapLoss(function="overlap", where=where, low=low, high=high, **at.tags()))
        for log, given in trace.twice:
            made = partial(SquashedTwice, function=log.name, where=log.where, shape=log.shape, origin=given)
            at.emit(made(**at.tags()))
        for spread in trace.spreads:
            at.emit(Difference(function=spread.operation, spread=spread, **at.tags()))

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if not at.run.automatic and self._seeks(at, loss):
            return
        if self._pending:  # manual optimisation: nothing has changed yet
            self._ask(at, loss)
        elif self._telling is not None and not at.run.automatic:
            self._telling.tell(at, loss)
        if at.run.automatic and at.trace is not None:
            self._by_hand = None
            at.trace.release()

    def _seeks(self, at: Moment, loss: Tensor) -> bool:
        """Is this backward pass there for a perturbation of the input, which is to make the loss worse?"""
        lines = {call.where for call, _ in self._pending}
        if self._telling is not None and self._telling.lowers(loss) and seeks_input(loss, at.run):
            self._sought |= lines
        return bool(lines) and lines <= self._sought

    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        self._steps += 1

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        self._release(at)

    def validation_end(self, at: Moment) -> None:
        self._release(at)

    def failed(self, at: Moment, error: BaseException) -> None:
        self._ask(at, None)
        self._release(at)
        if not at.sampled and NO_HISTORY in str(error):
            at.emit(DetachedLoss(attached=False, **at.tags()))

    def _release(self, at: Moment) -> None:
        self._pending.clear()
        self._by_hand = self._telling = None
        if at.trace is not None:
            at.trace.release()
            at.trace = None

    def _ask(self, at: Moment, loss: Tensor | None) -> None:
        """Send what was measured, now that the step's loss is known (or will not be)."""
        pending, self._pending = self._pending, []
        trace = at.trace
        if trace is not None and trace.ids:
            self._has_ids = True
            token_targets.ask(at, trace, [call for call, _ in pending if not call.error] + trace.picked, loss)
        if self._telling is not None and loss is not None:
            self._telling.tell(at, loss)
        first = at.stage == "train" and not self._opened and loss is not None
        if first:
            self._opened = True
            self._names = parameter_names(at.run.module)
        main = next((i for i, (c, n) in enumerate(pending) if "seen" in n), 0) if pending else -1
        for i, (call, numbers) in enumerate(pending):
            if loss is not None and len(pending) == 1 and is_plain(loss) and loss.numel() == 1:
                numbers["objective"] = loss.detach()
            facts = self._facts(call, loss, at.run, first and call.step == 0)
            facts.resumed |= trace is not None and trace.holds_on
            self._send(at, facts, numbers, i == main and first)
        if first and pending and not any("seen" in numbers for _, numbers in pending):
            reason = f"{pending[main][0].name} has no expected first value"
            at.emit(Unseen(codes=("WD101",), reason=reason, **at.tags()))
        if first and not pending and loss is not None and is_plain(loss) and loss.numel() == 1:
            self._ask_returned(at, loss)

    def _facts(self, call: LossCall, loss: Tensor | None, run: Run, first: bool) -> Facts:
        head, whole = self._names.get(id(call.head), ""), self._is_whole_sample(call)
        return Facts.of(call, loss, first=first, head=head, whole_samples=whole, **of_run(run))

    def _is_whole_sample(self, call: LossCall) -> bool:
        """Is there one label per sample of the batch, and no vocabulary in the model?"""
        scores, target = call.input, call.target
        flat = isinstance(scores, Tensor) and isinstance(target, Tensor) and scores.ndim == 2 and target.ndim == 1
        return flat and len(target) == self._batch_size and not self._has_ids

    def _send(self, at: Moment, facts: Facts, numbers: Numbers, opens: bool) -> None:
        tags, names = at.tags(), tuple(numbers)

        def read(arrived: Mapping[str, Tensor]) -> Iterator[Evidence]:
            values = dict(zip(names, arrived["numbers"].tolist(), strict=True))
            yield from evidence_of(facts, values, tags)
            yield from self._labels.take(facts, values, tags)
            if facts.first:
                started = first_loss(facts, values, tags)
                if started is not None:
                    yield started
                if opens:
                    yield from opening(facts, values, started, tags)

        if facts.error and not names:
            at.emit(target_range(facts, {}, tags))
        elif names:
            with torch.no_grad():
                at.ask({"numbers": torch.stack([_number(value) for value in numbers.values()])}, read)

    def _ask_returned(self, at: Moment, loss: Tensor) -> None:
        """No loss call could be read: the returned total is all there is."""
        run, tags = at.run, at.tags()
        distils = at.trace is not None and at.trace.distils  # with a temperature, which is a choice
        guessed = run.num_classes is None and run.expected_loss is None and not distils
        if self._by_hand is not None and guessed:
            call, numbers = self._by_hand
            facts = self._facts(call, loss, run, True)
            numbers["value"] = loss.detach()
            self._send(at, facts, numbers, True)
        at.emit(Unseen(codes=JUDGED, reason=self._why_unseen(loss), **tags))
        if self._by_hand is not None and guessed:
            return
        facts = Facts(function="training_step", kind="returned", resumed=run.resumed, first=True)
        facts.given = (run.num_classes, run.expected_loss)

        def read(arrived: Mapping[str, Tensor]) -> Iterator[Evidence]:
            values = {"value": float(arrived["loss"])}
            started = first_loss(facts, values, tags)
            if started is not None:
                yield started
            yield from opening(facts, values, started, tags)

        at.ask({"loss": loss.detach().float()}, read)

    def _why_unseen(self, loss: Tensor) -> str:
        if self._compiled:
            return "compiled step"
        if self._by_hand is not None:
            return f"a loss written by hand (log_softmax at {self._by_hand[0].where})"
        opaque = custom_function(loss)
        return f"the loss is computed by {opaque}" if opaque else "no loss function was called"


def _number(value: Tensor) -> Tensor:
    return value if value.ndim == 0 and value.dtype is torch.float32 else value.reshape(()).float()
