"""Losses and log-likelihoods of the batch's own data, followed to the step's loss with their signs.

Only what keeps a sign for certain is followed: sums, means, differences, views, numbers as factors. Everything else
ends the trail, so that what a loss is made of is known or not said.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from .calls import LossCall, Marks
from .cosines import Cosines
from .distances import Distances
from .facts import TensorFacts
from .gaussians import Gaussians
from .logsums import LogSums
from .loss_kinds import NEVER_NEGATIVE
from .operation import Operation
from .operations import ADDITIONS, FACTORS, SUBTRACTS, VIEWS
from .site import user_line
from .surrogates import Surrogates
from .terms import Term, Terms, beside_others, joined, times

JUDGED = (*NEVER_NEGATIVE, "poisson_nll_loss", "gaussian_nll_loss", "ctc_loss")
"""Losses that nobody enlarges for the batch's own targets."""
KEEPS = VIEWS | {
    *("mean", "sum", "nanmean", "nansum", "logsumexp", "positive", "masked_select", "masked_fill", "where"),
    *("cat", "stack", "hstack", "diagonal", "diag", "trace"),
}
PICKS = ("gather", "take_along_dim", "__getitem__")
LOGS = ("log", "log_softmax", "logsigmoid", "log_sigmoid")
UNBOUNDED = ("logsigmoid", "log_sigmoid")
"""Nobody makes these small alone, as of the gap between a liked and another item: they have no floor."""
SQUASHES = ("softmax", "sigmoid")
PARTIAL = "partial likelihood"
"""Logarithm of which every place is the likelihood of a sample, as long as its event was seen."""
ROUNDING = 1e-3
MOST = 1 << 16
"""Weights whose values are looked at."""


class Signs:
    """Follows terms through one step, of whose tensors the ``facts`` are known.

    ``all_train``: is nothing frozen? A fixed judge may keep in bounds what else would have none.
    """

    def __init__(self, facts: TensorFacts, gaussians: Gaussians, all_train: bool = False) -> None:
        self._facts, self._all_train = facts, all_train
        self._terms: Marks[Terms] = Marks()
        self._gaussians = gaussians
        self._distances = Distances(facts.is_given)
        self._logsums = LogSums()
        self._surrogates = Surrogates()
        self._cosines = Cosines(lambda t: t.requires_grad and facts.is_data(t), facts.is_unit)
        self._ended: set[Term] = set()
        self._logs: Marks[str] = Marks()
        self._probabilities: Marks[str] = Marks()

    def of(self, tensor: Any) -> Terms:
        """The terms whose weighted sum this is, as far as it is known."""
        return self._terms.get(tensor) or {}

    def wrong(self, loss: Tensor) -> list[Term]:
        """Those of the wrong sign in ``loss``, if none has the right one: else a difference is meant.

        A divergence from a fixed Gaussian and PPO's surrogate are told where all else has its right sign: nobody wants
        theirs. What the step has used in yet another way is left out: there it may have its right sign.
        """
        terms = self.of(loss)
        wrong = [t for t, sign in terms.items() if sign < 0 and t.certain and t not in self._ended]
        if any(sign > 0 and not t.always and not t.attracts for t, sign in terms.items()):
            return [t for t in wrong if t.always]
        return [t for t in wrong if not t.divergence] or wrong

    def pulled(self, loss: Tensor) -> list[Term]:
        """The cosines that ``loss`` enlarges, if it consists of nothing else."""
        terms = self.of(loss)
        alone = all(t.attracts and sign < 0 and t not in self._ended for t, sign in terms.items())
        return list(terms) if alone else []

    def called(self, call: LossCall) -> None:
        """A loss function was called."""
        target = call.target if call.name != "ctc_loss" else call.arguments.get("targets")
        if isinstance(call.value, Tensor) and call.value.requires_grad:
            if self._cosines.pulls(call) and not self._facts.is_data(call.target):
                self._terms.put(call.value, {Term(call.name, call.where, certain=False, attracts=True): -1})
                return
            given = any(isinstance(t, Tensor) and self._facts.is_given(t) for t in (target, call.input))
            self._terms.put(call.value, {Term(call.name, call.where, call.name in JUDGED and given, call): 1})

    def likelihood(self, distribution: Distribution, value: Any, result: Any) -> None:
        """``distribution.log_prob(value)`` was called."""
        learned = isinstance(result, Tensor) and result.requires_grad
        if learned and isinstance(value, Tensor) and self._facts.is_given(value):
            self.fits(f"{type(distribution).__name__}.log_prob", result)

    def fits(self, function: str, result: Tensor) -> None:
        """``result`` of a function grows with the fit to the batch's own data."""
        self._terms.put(result, {Term(function, user_line()): -1})

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if sign := self._surrogates.follow(op):
            self._terms.put(out, {Term("clipped surrogate", user_line(), surrogate=True): sign})
            return
        if not out.requires_grad:
            return
        divergence = self._gaussians.follow(op)
        known = [self.of(t) for t in inputs]
        if any(known):
            found = {} if op.is_weighed else self._sum(op, known)
            if name in ADDITIONS and any(not t.requires_grad and self._facts.is_data(t) for t in inputs):
                found = {}  # such as a ratio to stored probabilities
            if any(not k and t.requires_grad and self._facts.is_data(t) for k, t in zip(known, inputs, strict=True)):
                found = beside_others(found)
            self._terms.put(out, found)
            self._ended.update(term for k in known for term in k if term not in found)
            if found:
                return
        if divergence:
            term = Term("divergence from a fixed Gaussian", user_line(), divergence=True)
            self._terms.put(out, {term: divergence})
            return
        if self._cosines.follow(op):
            self._terms.put(out, {Term("cosine", user_line(), certain=False, attracts=True): 1})
            return
        distance, sign = self._distances.follow(op)
        if sign:
            self._terms.put(out, {Term(distance, user_line(), distance=True): sign})
            return
        if by_hand := self._logsums.follow(op):
            self._logs.put(out, by_hand)
            return
        squashed = self._probabilities.get(inputs[0]) if inputs else None
        if name in LOGS:
            if name in UNBOUNDED and self._all_train:
                self._terms.put(out, {Term("logsigmoid", user_line()): -1})
            if name != "log" or squashed:
                self._logs.put(out, f"log of a {squashed}" if name == "log" else name)
        elif name in SQUASHES:
            self._probabilities.put(out, name)
        elif squashed and (name in VIEWS or (name == "add" and len(inputs) == 1)):
            self._probabilities.put(out, squashed)
        else:
            self._note_picked(op)

    def _sum(self, op: Operation, known: list[Terms]) -> Terms:
        name, args, inputs = op.name, op.args, op.inputs
        if name == "add" or name in KEEPS:
            return joined(known)
        if name == "neg":
            return times(known[0], -1)
        if name in SUBTRACTS:
            first = isinstance(args[0], Tensor) and bool(self.of(args[0])) and name == "sub"
            left, right = (known[0], known[1:]) if first else ({}, known)
            if name == "rsub":
                left, right = ({}, known[:1]) if len(known) == 1 else (known[1], known[:1])
            return joined([left, *(times(k, -1) for k in right)])
        if name in FACTORS and len(args) > 1:
            whole = [i for i, k in enumerate(known) if k]
            if len(whole) == 1 and (name != "div" or args[0] is inputs[whole[0]]):
                factors = [a for a in args[:2] if a is not inputs[whole[0]]]
                return _weighed(known[whole[0]], factors[0]) if len(factors) == 1 else {}
        return {}

    def _note_picked(self, op: Operation) -> None:
        """A logarithm of probabilities meets the labels: it is their likelihood from here on."""
        name, inputs, out = op.name, op.inputs, op.out
        log = self._logs.get(inputs[0]) if inputs else None
        others = inputs[1:]
        if log is None and name in FACTORS and len(inputs) == 2:
            log, others = self._logs.get(inputs[1]), inputs[:1]
        if log is None:
            return
        given = [t for t in others if self._facts.is_given(t)]
        picks = name in PICKS and any(not t.is_floating_point() and t.dtype != torch.bool for t in given)
        if name == "__getitem__":
            chosen = log == PARTIAL and any(t.dtype == torch.bool for t in given)
            picks = chosen or (picks and _pairs_of_places(op.args[1]))
        weighs = name == "mul" and len(given) == len(others) == 1
        if picks or (weighs and _are_labels(given[0], "softmax" in log)):
            self._terms.put(out, {Term(log, user_line()): -1})
        elif name in VIEWS and not given:
            self._logs.put(out, log)


def _weighed(terms: Terms, factor: Any) -> Terms:
    """What is left after a factor: a number keeps all, weights that are nowhere negative the losses, with a doubt."""
    if not isinstance(factor, Tensor):
        number = float(factor) if isinstance(factor, (int, float)) else math.nan
    elif factor.requires_grad or not 0 < factor.numel() <= MOST:
        return {}
    elif factor.numel() == 1:
        number = float(factor)
    else:
        fine = bool((factor >= 0).all()) and all(term.is_loss for term in terms)
        return {replace(term, certain=False): sign for term, sign in terms.items()} if fine else {}
    return times(terms, 1 if number > 0 else -1) if number > 0 or number < 0 else {}


def _pairs_of_places(index: Any) -> bool:
    """Are these rows and columns, one of each per element?"""
    several = isinstance(index, tuple) and len(index) > 1
    return several and all(isinstance(i, (Tensor, range, list, int)) for i in index)


def _are_labels(weights: Tensor, over_classes: bool) -> bool:
    """Are these probabilities of classes, or labels and masks between 0 and 1?"""
    if not 0 < weights.numel() <= MOST or not weights.ndim:
        return False
    values = weights.detach().float()
    if not bool(((values >= 0) & (values <= 1)).all()):
        return False
    return not over_classes or bool(((values.sum(-1) - 1).abs() < ROUNDING).all())
