"""Looks at the data: what enters the model first, whether batches repeat, what the loaders promise."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import IterableDataset

from ..evidence.base import Evidence
from ..evidence.data import FirstInputs, LastBatch, Repeats
from ..evidence.progress import LeakedTarget
from ..evidence.readings import Unseen
from . import inputs, leaks, loaders, nodes
from .batches import Samples, elements
from .calls import Trace
from .fingerprints import fingerprint, kinds
from .first_loss import FirstLossObserver
from .inputs import Entering
from .moment import Moment
from .names import plain_name
from .run import Run

FIRST = 16
"""Consecutive batches that are compared with each other."""
FEWEST = 5
"""Batches needed before they are compared."""
FIRST_INPUTS = ("WD122", "WD123")
TABULAR = ("linear", "batch_norm")
"""Operations that take a table of samples and features."""


class Data(FirstLossObserver):
    """Measures the first batch where it enters the model; compares the first batches; reads loaders' attributes."""

    codes = ("WD122", "WD123", "WD124", "WD125", "WD145")

    def __init__(self) -> None:
        self._prints: list[tuple[int, int, dict[str, Tensor]]] = []
        self._generators: tuple[str, ...] = ()
        self._matters = True

    def start(self, run: Run, at: Moment) -> None:
        self._generators = tuple(path for loader in run.loaders for path in loaders.copied_generators(loader))
        if self._generators:
            at.emit(self._repeats(run, at, (), 0))

    def batch(self, at: Moment, batch: Any) -> None:
        if at.batch < FIRST:
            found = elements(batch)
            devices = {e.tensor.device for e in found}
            if len(devices) == 1:
                self._prints.append((at.batch, at.epoch, fingerprint(found)))

    def batch_end(self, at: Moment, output: Any) -> None:
        if at.sampled and len(self._prints) >= FEWEST and at.batch < 2 * FIRST:
            self._compare(at)

    def end(self, at: Moment) -> None:
        if len(self._prints) >= FEWEST and at.batch <= FIRST:
            self._compare(at)

    # -- the first backward

    def first_loss(self, at: Moment, loss: Tensor) -> None:
        shapes: list[tuple[int, ...]] = []
        consumers: dict[Any, set[str]] = {}
        compiled = False
        for node in nodes.nodes(loss):
            name = node.name()
            compiled = compiled or "CompiledFunction" in name
            if "BatchNorm" in name:
                shapes.append(nodes.result_shape(node))
            for following, _ in node.next_functions:
                if following is not None:
                    consumers.setdefault(following, set()).add(name)
        self._last_batch(at, shapes)
        trace = at.trace
        if trace is None or not trace.followed:
            reason = "compiled step" if compiled or (trace is not None and trace.compiled) else "step not followed"
            at.emit(Unseen(codes=FIRST_INPUTS, reason=reason, **at.tags()))
            return
        self._matters = bool(trace.frontier)
        places = [*trace.frontier[: inputs.WIDEST], *trace.joined[: inputs.WIDEST]]
        samples = Samples(at.data, loaders.drawn(at.run.loaders, at.run.changes_batches))
        entering, unread = inputs.entering(places, elements(at.data), samples, consumers)
        given = {id(e.tensor) for e in elements(at.data)}
        wanted = [c.target for c in trace.calls if id(c.target) in given]
        generates = any(t.ndim > 1 and t.is_floating_point() and t[0].numel() > 1 for t in wanted)
        found = partial(FirstInputs, unread=tuple(unread), drawn=bool(trace.drawn_at), generates=generates)
        self._first_inputs(at, entering, found)
        self._leak(at, trace, entering)

    def _first_inputs(self, at: Moment, entering: list[Entering], made: Callable[..., FirstInputs]) -> None:
        with _plain_numbers(at):
            found = [e.measure() for e in entering]
        tags = at.tags()

        def then(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            entries = []
            for i, one in enumerate(entering):
                mine = {k.partition("/")[2]: v for k, v in values.items() if k.partition("/")[0] == str(i)}
                entries.append(one.entry(mine))
            yield made(entries=tuple(entries), **tags)

        at.ask({f"{i}/{name}": value for i, one in enumerate(found) for name, value in one.items()}, then)

    def _leak(self, at: Moment, trace: Trace, entering: list[Entering]) -> None:
        tables = [e for e in entering if e.operation in TABULAR and e.tensor.ndim == 2]
        labels = [(c, y) for c in trace.calls if (y := leaks.labels_of(c)) is not None]
        if not labels:
            return
        call, wanted = labels[0]
        if any(e.node is not None for e in tables):
            behind = set(nodes.nodes(call.input))  # teacher forcing attaches targets to what another loss gets
            tables = [e for e in tables if e.node is None or e.node in behind]
        if not tables:
            return
        table = tables[0]
        with _plain_numbers(at):
            found = leaks.columns(table.tensor.detach(), wanted, call.name in leaks.CLASSIFYING)
        if found:
            tags, shape = at.tags(), table.tensor.shape
            path = table.path or f"the input of {table.operation}"
            at.ask(found, lambda v: [LeakedTarget(path=path, where=call.where, **leaks.facts(v, *shape), **tags)])

    def _last_batch(self, at: Moment, shapes: list[tuple[int, ...]]) -> None:
        run = at.run
        flat = any(len(s) == 2 or (len(s) > 2 and set(s[2:]) == {1}) for s in shapes)
        names = tuple(plain_name(n) for n, m in run.module.named_modules() if _needs_two(m)) if flat else ()
        for loader in run.loaders if len(run.loaders) == 1 else ():
            samples, size = loaders.samples_per_epoch(loader), loaders.batch_size(loader)
            reached = not (samples > 0 and size > 0) or run.batches_per_epoch >= -(-samples // size)
            if loaders.drops_last(loader) or not reached:
                samples -= samples % size if size else 0
            at.emit(LastBatch(samples=samples, size=size, layers=names, **at.tags()))

    # -- repeated batches

    def _compare(self, at: Moment) -> None:
        prints, self._prints = self._prints, self._prints if at.batch < FIRST - 1 else []
        reason = "" if self._matters else "no tensor of the batch meets a weight"
        if any(loaders.items_are_batches(loader) for loader in at.run.loaders):
            reason = "every item of the data set is a batch of its own"
        if reason:
            at.emit(Unseen(codes=("WD124",), reason=reason, **at.tags()))
            return
        run, tags = at.run, at

        def then(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            grouped: list[dict[str, Tensor]] = [{} for _ in prints]
            for name, value in values.items():
                i, _, path = name.partition("/")
                grouped[int(i)][path] = value
            numbers, variety = kinds(grouped)
            rows = tuple((b, e, k) for (b, e, _), k in zip(prints, numbers, strict=True))
            yield self._repeats(run, tags, rows, variety)

        at.ask({f"{i}/{path}": value for i, (_, _, one) in enumerate(prints) for path, value in one.items()}, then)

    def _repeats(self, run: Run, at: Moment, rows: tuple[tuple[int, int, int], ...], variety: int) -> Repeats:
        return Repeats(
            batches=rows,
            variety=variety,
            per_epoch=run.batches_per_epoch,
            workers=max((getattr(loader, "num_workers", 0) for loader in run.loaders), default=0),
            streaming=any(isinstance(getattr(loader, "dataset", None), IterableDataset) for loader in run.loaders),
            generators=self._generators,
            **at.tags(),
        )


def _needs_two(module: nn.Module) -> bool:
    return (
        isinstance(module, _BatchNorm) and module.training and not isinstance(module, (nn.BatchNorm2d, nn.BatchNorm3d))
    )


def _plain_numbers(at: Moment) -> Any:
    kind = at.run.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
