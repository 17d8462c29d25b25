"""Attention that does not see what it should: a padding mask turned round or missing, weights that are all one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .across import Across
from .calls import Marks, Trace
from .facts import Fact
from .observer import is_plain
from .operation import Operation
from .operations import VIEWS
from .recurring import Recurring
from .site import user_line
from .suspects import keeps_order
from .together import ATTENTION, FUSED, Together
from .unmasked import Unmasked
from .weighing import CONTRACTIONS, Weighing

KEPT, HIDDEN = 0.9, 0.5
"""Share of the padding that a mask turned round keeps, and of the tokens that it hides: often the first one is kept."""
AT_THE_END = 0.99
"""Share of a token's places that lie in runs up to the end of a row, so that it is the padding."""
MASKS = 4
"""Masks kept of a step."""
MASKED = -9e3
"""Scores at or below this are hidden: masks use -1e4, -1e9 or -inf."""
MUCH, HALF = 0.1, 0.5
"""Share of the places that must be padding for its weight to count, and from which on it is no padding: places to be
filled in, as of a text whose end is masked."""


class Attending:
    """Follows the operations on values made from the batch, in one step on so many samples; ``drawn``: by the loader.

    ``is_given``: is a tensor data of the batch, and nothing that a trained part has made?

    Attributes:
        together: attention between samples that is meant. weighing: what weights of positions show. across:
            softmaxes over samples. recurring: where recurrent layers run over samples.
        placed: line of an addition of a table, cut to the number of samples, to samples that are sequences.
        states: last states of recurrent layers. torn: line of a reshape that takes their layers for samples.
        lone: line of a softmax over an axis of length one whose result weighs positions that are summed up.
    """

    def __init__(self, samples: int, drawn: int, is_given: Callable[[Tensor], bool]) -> None:
        self.together = Together(samples)
        self.weighing = Weighing(is_given)
        self.across = Across(samples)
        self.recurring = Recurring(samples)
        self._unmasked = Unmasked()
        self.lone = self.placed = self.torn = ""
        self.states: Marks[bool] = Marks()
        self._drawn = drawn if drawn == samples else 0
        self._counted: Marks[Tensor] = Marks()
        self._by_place: list[tuple[str, Tensor]] = []
        self._weights: dict[int, tuple[Tensor, str]] = {}
        self._masks: list[tuple[str, Tensor, list[Tensor]]] = []
        self._open: list[tuple[str, list[Tensor]]] = []

    def follow(self, op: Operation, facts: list[Fact], trace: Trace) -> None:
        """One operation of the step of ``trace``, of whose inputs the ``facts`` are known."""
        self.together.follow(op)
        self.weighing.follow(op)
        self.across.follow(op, facts[0].rows if facts else None)
        self._unmasked.follow(op, trace)
        self.recurring.follow(op, [f.rows for f in facts])
        name, args, out, given = op.name, op.args, op.out, op.first
        if given is None:
            return
        first = facts[0]
        if name in ("view", "reshape") and out.ndim == 2 and given.ndim == 3 and self.states.get(given):
            self.torn = self.torn or (user_line() if len(out) == given.shape[1] != len(given) > 1 else "")
        if name == "add" and len(args) > 1 and not self.placed:
            self._note_positions(given, args[1])
        if name in (ATTENTION, FUSED):
            padding = op.kwargs.get("key_padding_mask")
            mask = op.argument("attn_mask", 3) if name == FUSED else op.kwargs.get("attn_mask")
            if name == ATTENTION:
                self._note_mask(padding, trace.ids)
            else:
                self._note_hidden(mask, trace.ids)
            if padding is None and mask is None and out.requires_grad and not keeps_order(op):
                self._note_open(name, op.argument("key", 1), trace.ids)
        elif name == "softmax" and out.ndim > 2 and out.shape[-1] > 1:
            if op.argument("dim", 1) in (-1, out.ndim - 1):
                self._note_hidden(given, trace.ids)
        elif name == "softmax" and first.is_raw and given.ndim > 2 and given.shape[-1] == 1:
            axis = op.argument("dim", 1)
            if axis in (-1, given.ndim - 1) and first.head is not None and len(first.head) == 1:
                self._weights[id(out)] = out, user_line()
        elif self._weights and not self.lone:
            self._weigh(op)

    def counts(self, ids: Any, out: Tensor) -> None:
        """Rows of a table that no data of the batch has chosen."""
        if isinstance(ids, Tensor) and is_plain(ids) and ids.shape == (self._drawn, 1):
            self._counted.put(out, ids)

    def _note_positions(self, a: Tensor, b: Any) -> None:
        if self._is_cut_to_samples(a, b):
            self.placed = user_line()
        elif isinstance(b, Tensor) and len(self._by_place) < MASKS:
            for ids, sequences in ((self._counted.get(a), b), (self._counted.get(b), a)):
                if ids is not None and sequences.ndim == 3 and sequences.shape[1] not in (1, self._drawn):
                    self._by_place.append((user_line(), ids))

    def placed_at(self) -> str:
        """Line that gives each sample the code of its place in the batch. Waits for the device."""
        for where, ids in self._by_place:
            if not self.placed and bool((ids[:, 0] == torch.arange(len(ids), device=ids.device)).all()):
                self.placed = where
        return self.placed

    def _is_cut_to_samples(self, sequences: Tensor, cut: Any) -> bool:
        """Is a table (positions, 1, features), cut at the number of samples, spread over (samples, time, features)?"""
        table = cut._base if isinstance(cut, Tensor) and cut.storage_offset() == 0 else None
        if sequences.ndim != 3:
            return False
        samples, length, width = sequences.shape
        if table is None or not table.is_leaf or table.ndim > 3 or not is_plain(cut) or table.numel() % width:
            return False
        positions = table.numel() // width
        whole = table.shape[-1] == width and cut.shape[1:] == (1, width) and cut.is_contiguous()
        return whole and len(cut) == samples == self._drawn not in (1, length) and length <= positions > samples

    def _weigh(self, op: Operation) -> None:
        name, args, out = op.name, op.args, op.out
        where = next((w[1] for a in args if (w := self._weights.get(id(a))) is not None and w[0] is a), "")
        if not where:
            return
        if name in VIEWS or name == "mul":
            self._weights[id(out)] = out, where
        elif name in CONTRACTIONS and args[0].shape[-1] > 1:
            self.lone = where
        elif name == "sum":
            axis = op.argument("dim", 1)
            if isinstance(axis, int) and args[0].shape[axis] > 1 and args[0].shape[-1] > 1:
                self.lone = where

    def _note_mask(self, mask: Any, ids: list[Tensor]) -> None:
        fits = [i for i in ids if isinstance(mask, Tensor) and i.shape == mask.shape and i.ndim == 2]
        if fits and len(self._masks) < MASKS and all(map(is_plain, (mask, *fits))):
            hidden = mask if mask.dtype is torch.bool else mask == -torch.inf
            self._masks.append((user_line(), hidden, fits))

    def _note_hidden(self, scores: Any, ids: list[Tensor]) -> None:
        """Scores or a mask (samples, …, keys): which keys of a sample can no query see?"""
        if not isinstance(scores, Tensor) or scores.ndim < 3 or len(self._masks) >= MASKS or not is_plain(scores):
            return
        if any(i.shape == (len(scores), scores.shape[-1]) for i in ids):
            shut = ~scores if scores.dtype is torch.bool else scores.detach() <= MASKED
            self._note_mask(shut.flatten(1, -2).all(1), ids)

    def _note_open(self, name: str, keys: Any, ids: list[Tensor]) -> None:
        """Note attention without any mask to the positions that ids were looked up for."""
        if len(self._open) == MASKS or not isinstance(keys, Tensor) or keys.ndim < 3:
            return
        shape = (keys.shape[1], keys.shape[0]) if name == ATTENTION else (keys.shape[0], keys.shape[-2])
        fits = [i for i in ids if tuple(i.shape) == shape and is_plain(i)]
        if fits:
            self._open.append((user_line(), fits))

    def without_mask(self) -> tuple[str, float]:
        """Line of attention that no mask keeps from padding, and the padding's share. Waits for the device."""
        by_hand = [(w.where, w.ids) for w in self._unmasked.found()]
        for where, several in (*self._open, *by_hand):
            for ids in several:
                found = _padding(ids)
                share = float(found.float().mean()) if found is not None else 0.0
                if MUCH <= share < HALF:
                    return where, share
        return "", 0.0

    def turned_round(self) -> str:
        """Line of attention whose mask hides the tokens and keeps the padding. Waits for the device."""
        for where, hidden, several in self._masks:
            shares = [s for ids in several if (s := _shares(hidden, ids)) is not None]
            right = any(padding > HIDDEN and tokens < HIDDEN for padding, tokens in shares)
            if not right and any(1 - padding >= KEPT and tokens > HIDDEN for padding, tokens in shares):
                return where
        return ""


def _shares(hidden: Tensor, ids: Tensor) -> tuple[float, float] | None:
    """Shares of the padding and of the tokens that are hidden; None where no padding was recognised."""
    run = _padding(ids)
    return None if run is None else (float(hidden[run].float().mean()), float(hidden[~run].float().mean()))


def _padding(ids: Tensor) -> Tensor | None:
    """Which of the ids ``(samples, positions)`` are padding, behind the tokens or before them; None for none."""
    for turned in (False, True):
        rows = ids.flip(1) if turned else ids
        last = rows[:, -1].mode().values
        same = rows == last
        run = same.flip(1).cumprod(1).flip(1).bool()
        lengths = run.sum(1)
        if int(lengths.amax()) < 2 or bool((lengths == lengths[0]).all()) or int(lengths.amax()) == rows.shape[1]:
            continue
        if float(run.sum() / same.sum()) >= AT_THE_END:
            return run.flip(1) if turned else run
    return None
