"""Weights of positions: attention by hand, and masks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.runs import Classifier, loader, mlp

from .case import Run, fault, healthy
from .parts import tones

Weighs = Callable[[Tensor, Tensor], Tensor]
"""Scores (…, queries, keys) and values to weighted values."""


class ByHand(nn.Module):
    """One layer of attention over (n, t, 8), mean over time, 4 scores."""

    def __init__(self, weigh: Weighs) -> None:
        super().__init__()
        self.inlet, self.outlet, self.weigh = nn.Linear(8, 24), nn.Linear(24, 4), weigh
        self.query, self.key, self.value = (nn.Linear(24, 24) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.inlet(x)
        scores = self.query(h) @ self.key(h).transpose(-2, -1) / 24**0.5
        return self.outlet((h + self.weigh(scores, self.value(h))).mean(1))


class Pools(nn.Module):
    """Weighs the steps of (n, t, 8) that are not padding, as ``weigh`` makes it of scores and mask."""

    def __init__(self, weigh: Weighs) -> None:
        super().__init__()
        self.inlet, self.score, self.outlet, self.weigh = nn.Linear(8, 24), nn.Linear(24, 1), nn.Linear(24, 4), weigh

    def forward(self, x: Tensor) -> Tensor:
        mask = (x != 0).any(2, keepdim=True).float()
        h = self.inlet(x).tanh()
        return self.outlet((self.weigh(self.score(h), mask) * h).sum(1))


def padded() -> tuple[Tensor, Tensor]:
    x, y = tones()
    return x * (torch.arange(20) < torch.randint(6, 20, (len(x), 1)))[..., None], y


@fault("WD134")
def softmax_over_the_queries(fixed: bool) -> Run:
    def weigh(scores: Tensor, values: Tensor) -> Tensor:
        return nn.functional.dropout(scores.softmax(-1 if fixed else -2), 0.1) @ values

    return Classifier(ByHand(weigh), lr=3e-3), loader(*tones()), {}


@fault("WD134")
def softmax_over_the_queries_of_each_head() -> Run:
    def weigh(scores: Tensor, values: Tensor) -> Tensor:
        scores = torch.stack([scores, 2 * scores], 1)
        scores = torch.einsum(
            "bhqk,bhkd->bhqd", (scores @ scores / 9).softmax(2), values[:, None].expand(-1, 2, -1, -1)
        )
        return scores.mean(1)

    return Classifier(ByHand(weigh), lr=3e-3), loader(*tones()), {}


@fault("WD134")
def mask_multiplied_with_scores(fixed: bool) -> Run:
    def weigh(scores: Tensor, mask: Tensor) -> Tensor:
        return (scores.masked_fill(mask == 0, -torch.inf) if fixed else scores * mask).softmax(1)

    return Classifier(Pools(weigh), lr=3e-3), loader(*padded()), {}


@healthy
def masked_before_and_after_and_normalised() -> Run:
    def weigh(scores: Tensor, mask: Tensor) -> Tensor:
        weights = (scores * mask).softmax(1) * mask
        return weights / (weights.sum(1, keepdim=True) + 1e-9)

    return Classifier(Pools(weigh), lr=3e-3), loader(*padded()), {}


@healthy
def masked_after_the_softmax_only() -> Run:
    return Classifier(Pools(lambda scores, mask: scores.softmax(1) * mask), lr=3e-3), loader(*padded()), {}


@healthy
def padded_steps_zeroed_before_a_softmax_over_channels() -> Run:
    class Gates(Pools):
        def forward(self, x: Tensor) -> Tensor:
            mask = (x != 0).any(2, keepdim=True).float()
            h = self.inlet(x) * mask
            return self.outlet((h.softmax(2) * h).sum(1))

    return Classifier(Gates(lambda scores, mask: scores), lr=3e-3), loader(*padded()), {}


@healthy
def slots_that_compete_for_places() -> Run:
    def weigh(scores: Tensor, values: Tensor) -> Tensor:
        shares = scores.softmax(-2) + 1e-8
        return (shares / shares.sum(-1, keepdim=True)) @ values

    return Classifier(ByHand(weigh), lr=3e-3), loader(*tones()), {}


@healthy
def keys_first_and_turned_round() -> Run:
    def weigh(scores: Tensor, values: Tensor) -> Tensor:
        return scores.transpose(-2, -1).softmax(-2).transpose(-2, -1) @ values

    return Classifier(ByHand(weigh), lr=3e-3), loader(*tones()), {}


@healthy
def clusters_that_places_are_shared_among() -> Run:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.assign, self.outlet = nn.Linear(8, 24), nn.Linear(24, 6), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x).relu()
            return self.outlet((self.assign(h).transpose(1, 2).softmax(1) @ h).mean(1))

    return Classifier(Pooled(), lr=3e-3), loader(*tones()), {}


@healthy
def linear_attention_of_two_softmaxes() -> Run:
    class Linear(ByHand):
        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x)
            context = self.key(h).softmax(1).transpose(1, 2) @ self.value(h)
            return self.outlet((h + self.query(h).softmax(2) @ context).mean(1))

    return Classifier(Linear(lambda scores, values: values), lr=3e-3), loader(*tones()), {}


@healthy
def values_times_transposed_weights() -> Run:
    def weigh(scores: Tensor, values: Tensor) -> Tensor:
        return (values.transpose(1, 2) @ scores.softmax(-1).permute(0, 2, 1)).transpose(1, 2)

    return Classifier(ByHand(weigh), lr=3e-3), loader(*tones()), {}


@healthy
def scores_dropped_by_hand() -> Run:
    def weigh(scores: Tensor, mask: Tensor) -> Tensor:
        kept = (torch.rand_like(scores) > 0.2).float()
        return (scores * kept).masked_fill(mask == 0, -torch.inf).softmax(1)

    return Classifier(Pools(weigh), lr=3e-3), loader(*padded()), {}


@healthy
def small_scores_set_to_zero() -> Run:
    def weigh(scores: Tensor, values: Tensor) -> Tensor:
        return (scores * (scores > 0.1)).softmax(-1) @ values

    return Classifier(ByHand(weigh), lr=3e-3), loader(*tones()), {}


@healthy
def own_place_left_out_by_a_factor() -> Run:
    def weigh(scores: Tensor, values: Tensor) -> Tensor:
        return (scores * (1 - torch.eye(20))).softmax(-1) @ values

    return Classifier(ByHand(weigh), lr=3e-3), loader(*tones()), {}


@healthy
def mask_as_a_factor_and_a_large_negative_number() -> Run:
    def weigh(scores: Tensor, mask: Tensor) -> Tensor:
        return (scores * mask + (1 - mask) * -1e9).softmax(1)

    return Classifier(Pools(weigh), lr=3e-3), loader(*padded()), {}


class Einsum(ByHand):
    """Attention of two heads, whose scores are (n, queries, keys, heads)."""

    def __init__(self, axis: int) -> None:
        super().__init__(lambda scores, value: value)
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        h = self.inlet(x)
        query, key, value = (f(h).unflatten(-1, (2, 12)) for f in (self.query, self.key, self.value))
        weights = torch.einsum("bihd,bjhd->bijh", query, key).div(12**0.5).softmax(self.axis)
        return self.outlet((h + torch.einsum("bijh,bjhd->bihd", weights, value).flatten(2)).mean(1))


@fault("WD134")
def softmax_over_the_queries_of_an_einsum(fixed: bool) -> Run:
    return Classifier(Einsum(2 if fixed else 1), lr=3e-3), loader(*tones()), {}


@fault("WD134")
def mask_multiplied_with_scores_of_a_matrix_product() -> Run:
    def weigh(scores: Tensor, mask: Tensor) -> Tensor:
        return (scores * mask).softmax(1)

    class Contracts(Pools):
        def forward(self, x: Tensor) -> Tensor:
            mask = (x != 0).any(2, keepdim=True).float()
            h = self.inlet(x).tanh()
            return self.outlet(torch.einsum("nt,ntd->nd", self.weigh(self.score(h), mask).squeeze(2), h))

    return Classifier(Contracts(weigh), lr=3e-3), loader(*padded()), {}


class Chooses(Classifier):
    """Picks one of the rows of (n, t, 4); only rows with a flag are worth more or less than others."""

    def chances(self, scores: Tensor, flags: Tensor) -> Tensor:
        return (scores * flags).softmax(1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, flags, y = batch
        p = self.chances(self.net(x)[..., 0], flags)
        return -p.gather(1, y[:, None]).log().mean()


def choices() -> Any:
    x, flags = torch.randn(640, 6, 4), (torch.rand(640, 6) > 0.5).float()
    worth = 2 * flags * x[..., 1] - (-torch.rand(640, 6).log()).log()
    return loader(x, flags, worth.argmax(1))


@healthy
def flags_that_count_in_a_choice() -> Run:
    return Chooses(mlp(4, 1), lr=5e-3), choices(), {}


@healthy
def flags_that_count_in_a_choice_with_an_entropy() -> Run:
    class Hesitates(Chooses):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            p = self.chances(self.net(batch[0])[..., 0], batch[1])
            return super().training_step(batch, batch_idx) + 0.01 * (p * p.log()).sum(1).mean()

    return Hesitates(mlp(4, 1), lr=5e-3), choices(), {}
