"""What the step's loss is made of, and with which sign."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.observe.calls import Trace
from sanity_watchdog.observe.distributions import likelihoods
from sanity_watchdog.observe.followers import Followers
from sanity_watchdog.observe.intercept import FollowingMode, Interception
from sanity_watchdog.observe.lineage import Lineage

P = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
Z, Y, V = torch.randn(8, 5), torch.randint(0, 5, (8,)), torch.randn(8, 5)


def followed(loss: Callable[..., Tensor]) -> tuple[Followers, Tensor]:
    z, y, v = Z.clone().requires_grad_(), Y.clone(), V.clone()
    trace = Trace(followed=True)
    inside = Interception(trace, lambda call: None, 0)
    mode, followers = FollowingMode(inside, Lineage(trace, (y, v), True)), trace.followers
    assert followers is not None
    with likelihoods(inside, followers), mode:
        out = loss(z, y, v)
    inside.tell()
    return followers, out


def picked(z: Tensor, y: Tensor) -> Tensor:
    return z.log_softmax(1).gather(1, y[:, None]).squeeze(1)


LOSSES: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "plain": (lambda z, y, v: F.cross_entropy(z, y), [1]),
    "minus": (lambda z, y, v: -F.cross_entropy(z, y) / 3, [-1]),
    "from one": (lambda z, y, v: 1 - F.cross_entropy(z, y), [-1]),
    "to one": (lambda z, y, v: F.cross_entropy(z, y) - 1, [1]),
    "minus twice": (lambda z, y, v: -(-2.0 * F.cross_entropy(z, y)), [1]),
    "zero": (lambda z, y, v: 0 * F.cross_entropy(z, y), []),
    "rsub": (lambda z, y, v: torch.rsub(F.cross_entropy(z, y), 1), [-1]),
    "of a penalty": (lambda z, y, v: z.square().mean() - F.mse_loss(z, v), [-1]),
    "of another": (lambda z, y, v: (z * v).mean() - F.mse_loss(z, v), [-1]),
    "difference": (lambda z, y, v: F.cross_entropy(z, y) - F.mse_loss(z, v), [1, -1]),
    "alpha": (lambda z, y, v: torch.add(z.mean(), F.mse_loss(z, v), alpha=-1), []),
    "in place": (lambda z, y, v: (0.0 * z.sum()).add_(F.mse_loss(z, v)).neg_(), [-1]),
    "in place lost": (lambda z, y, v: F.mse_loss(z, v).mul(1).exp_(), []),
    "own sum": (lambda z, y, v: sum([F.mse_loss(z, v), F.cross_entropy(z, y)]), [1, 1]),
    "stack": (lambda z, y, v: torch.stack([-F.mse_loss(z, v), -F.l1_loss(z, v)]).mean(), [-1, -1]),
    "self": (lambda z, y, v: F.mse_loss(z, v) - F.mse_loss(z, v), [1, -1]),
    "cancelled": (lambda z, y, v: (lambda a: a - 2 * a)(F.mse_loss(z, v)), []),
    "tensor factor": (lambda z, y, v: F.mse_loss(z, v) * torch.tensor(-2.0), [-1]),
    "learned factor": (lambda z, y, v: -F.mse_loss(z, v) * z.sum().exp(), []),
    "reciprocal": (lambda z, y, v: -1 / F.mse_loss(z, v), []),
    "exponential": (lambda z, y, v: (-F.mse_loss(z, v)).exp(), []),
    "doubtful weights": (lambda z, y, v: -(F.mse_loss(z, v, reduction="none") * v.abs()).mean(), [-1]),
    "signed weights": (lambda z, y, v: -(F.mse_loss(z, v, reduction="none") * v).mean(), []),
    "own target": (lambda z, y, v: -F.mse_loss(z, z.detach() + 1), [-1]),
    "no likelihood": (lambda z, y, v: z.log_softmax(1).mean(), []),
    "gather": (lambda z, y, v: picked(z, y).mean(), [-1]),
    "gather, minus": (lambda z, y, v: -picked(z, y).sum() / len(y), [1]),
    "of cosines": (lambda z, y, v: picked(F.normalize(z @ v.T) @ F.normalize(z @ v.T).T, y).mean(), [-1]),
    "rows": (lambda z, y, v: z.log_softmax(1)[y].mean(), []),
    "pairs": (lambda z, y, v: z.log_softmax(1)[torch.arange(8), y].mean(), [-1]),
    "range": (lambda z, y, v: z.log_softmax(1)[range(8), y].mean(), [-1]),
    "one by one": (lambda z, y, v: sum(z.log_softmax(1)[i, y[i]] for i in range(2)), [-1, -1]),
    "columns": (lambda z, y, v: z.log_softmax(1)[:, y].mean(), []),
    "own labels": (lambda z, y, v: picked(z, z.argmax(1)).mean(), []),
    "weighed": (lambda z, y, v: (picked(z, y) * v[:, 0].abs()).mean(), []),
    "one hot": (lambda z, y, v: (F.one_hot(y, 5) * z.log_softmax(1)).sum(), [-1]),
    "soft": (lambda z, y, v: (z.log_softmax(1) * v.softmax(1)).sum(1).mean(), [-1]),
    "no labels": (lambda z, y, v: (z.log_softmax(1) * v.abs()).sum(1).mean(), []),
    "entropy": (lambda z, y, v: (z.softmax(1) * z.log_softmax(1)).sum(1).mean(), []),
    "normal": (lambda z, y, v: D.Normal(z, 1.0).log_prob(v).sum(1).mean(), [-1]),
    "normal, minus": (lambda z, y, v: -D.Independent(D.Normal(z, 1.0), 1).log_prob(v).mean(), [1]),
    "bernoulli": (lambda z, y, v: D.Bernoulli(logits=z).log_prob((v > 0).float()).mean(), [-1]),
    "sampled": (lambda z, y, v: D.Normal(z, 1.0).log_prob(D.Normal(z, 1.0).sample()).mean(), []),
    "reparametrised": (lambda z, y, v: D.Normal(z, 1.0).log_prob(D.Normal(z, 1.0).rsample() + v).mean(), []),
    "penalty": (lambda z, y, v: (picked(z, y) - picked(v, y)).mean(), []),
    "square": (lambda z, y, v: ((z - v) ** 2).mean(), [1]),
    "minus a square": (lambda z, y, v: -(v - z).pow(2).sum(1).mean(), [-1]),
    "product with itself": (lambda z, y, v: (lambda d: -(d * d).mean())(z - v), [-1]),
    "absolute": (lambda z, y, v: -(z - v).abs().mean() / 2, [-1]),
    "weighed square": (lambda z, y, v: ((z - v).square() * v[:, :1].abs()).mean(), [1]),
    "square of an own distance": (lambda z, y, v: -((z - z.detach()) ** 2).mean(), []),
    "square times data": (lambda z, y, v: ((z - v) ** 2 * v[:, :1]).mean(), []),
    "square over a learned scale": (lambda z, y, v: (((v - z[:, :1]) / z[:, 1:2].exp()) ** 2).mean(), []),
    "kernel": (lambda z, y, v: -(-((z - v) ** 2).sum(1)).exp().mean(), []),
    "pinball": (lambda z, y, v: (lambda e: torch.maximum(0.9 * e, -0.1 * e).mean())(v - z), [1]),
    "pinball of the smaller": (lambda z, y, v: (lambda e: torch.min(0.9 * e, -0.1 * e).mean())(v - z), [-1]),
    "pinball of several": (
        lambda z, y, v: (lambda e: -torch.max(P * e, (P - 1) * e).mean())(v - z),
        [-1],
    ),
    "pinball chosen": (lambda z, y, v: (lambda e: torch.where(e >= 0, 0.9 * e, -0.1 * e).mean())(v - z), [1]),
    "pinball chosen wrongly": (lambda z, y, v: (lambda e: torch.where(e < 0, 0.9 * e, -0.1 * e).mean())(v - z), [-1]),
    "larger of two differences": (lambda z, y, v: torch.max(z - v, v.flip(0) - z).mean(), []),
    "partial likelihood": (lambda z, y, v: ((z - z.logcumsumexp(0)) * (v > 0)).sum(), [-1]),
    "partial likelihood, minus": (lambda z, y, v: -(z - z.exp().cumsum(0).log())[v > 0].mean(), [1]),
    "partial likelihood from the end": (lambda z, y, v: (z - z.flip(0).logcumsumexp(0).flip(0))[v > 0].mean(), [-1]),
    "partial likelihood, weighed": (lambda z, y, v: ((z - z.logcumsumexp(0)) * v).sum(), []),
    "log-softmax by hand": (lambda z, y, v: (z - z.logsumexp(1, keepdim=True)).gather(1, y[:, None]).mean(), [-1]),
    "without labels": (lambda z, y, v: (z - z.logsumexp(1, keepdim=True)).mean(), []),
    "of another sum": (lambda z, y, v: (z - (2 * z).logsumexp(1, keepdim=True)).gather(1, y[:, None]).mean(), []),
    "ratio": (lambda z, y, v: (D.Normal(z, 1.0).log_prob(v) - D.Normal(v, 1.0).log_prob(v)).exp().mean(), []),
}


@pytest.mark.parametrize("name", LOSSES)
def test_signs(name: str) -> None:
    torch.manual_seed(0)
    loss, expected = LOSSES[name]
    followers, out = followed(loss)
    assert list(followers.signs.of(out).values()) == expected


def entropy_bonus(z: Tensor, y: Tensor, v: Tensor) -> Tensor:
    log_p = picked(z, y)
    return 0.01 * log_p.mean() - ((log_p - v[:, 0]).exp() * v[:, 1]).mean()


def test_weights_targets_of_ones_own_and_other_uses_leave_a_doubt() -> None:
    doubtful = (LOSSES[n][0] for n in ("doubtful weights", "own target", "of another"))
    for loss in (*doubtful, entropy_bonus, lambda z, y, v: (z * v).mean() - (z - v).square().mean()):
        followers, out = followed(loss)
        assert list(followers.signs.of(out).values()) == [-1]
        assert not followers.signs.wrong(out)


WRONG = ("minus", "from one", "of a penalty", "stack", "gather", "one hot", "normal", "minus a square", "absolute")


@pytest.mark.parametrize("name", [*WRONG, "pinball of the smaller", "partial likelihood"])
def test_wrong_signs(name: str) -> None:
    followers, out = followed(LOSSES[name][0])
    assert followers.signs.wrong(out) == list(followers.signs.of(out))


@pytest.mark.parametrize("name", ["plain", "difference", "cancelled", "gather, minus"])
def test_right_signs(name: str) -> None:
    followers, out = followed(LOSSES[name][0])
    assert not followers.signs.wrong(out)


def test_distributions_are_left_as_they_were() -> None:
    class Own(D.Normal):
        def log_prob(self, value: Tensor) -> Tensor:
            return super().log_prob(value) + 1

    kinds = (D.Normal, D.Categorical, D.MixtureSameFamily, Own)
    before = [vars(kind)["log_prob"] for kind in kinds]
    trace = Trace()
    Lineage(trace, (), True)
    assert trace.followers is not None
    scope = likelihoods(Interception(trace, lambda call: None, 0), trace.followers)
    during = []

    def fails() -> None:
        with scope:
            during.extend(vars(kind)["log_prob"] for kind in kinds)
            D.Bernoulli(0.5, validate_args=True).log_prob(torch.tensor(2.0))

    with pytest.raises(ValueError, match="within the support"):
        fails()
    assert not set(during) & set(before)
    assert [vars(kind)["log_prob"] for kind in kinds] == before


def gaussian(z: Tensor) -> tuple[Tensor, Tensor]:
    return z[:, :2], z[:, 2:4]


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "with its minus": lambda m, s: -0.5 * (1 + s - m.pow(2) - s.exp()).sum(1),
    "turned round": lambda m, s: 0.5 * torch.sum(m**2 + torch.exp(s) - s - 1, dim=1),
    "of a product": lambda m, s: ((m * m + s.exp() - 1 - s) / 2).sum(1),
    "of the logarithm of the deviation": lambda m, s: -0.5 * (1 + 2 * s - m**2 - (2 * s).exp()).sum(1),
    "of the deviation": lambda m, s: (lambda d: (0.5 * (m**2 + d**2 - 1) - d.log()).sum(1))(F.softplus(s)),
    "of its square": lambda m, s: (lambda d: 0.5 * (m.square() + d**2 - (d**2).log() - 1).sum(1))(F.softplus(s)),
    "of an exponential": lambda m, s: (lambda d: (m.square() + d.square() - 2 * s - 1).sum(1))(s.exp()),
    "from a fixed one": lambda m, s: D.kl_divergence(D.Normal(m, s.exp()), D.Normal(V[:, :2], 2.0)).sum(1),
    "of torch": lambda m, s: D.kl_divergence(D.Normal(m, s.exp()), D.Normal(0.0, 1.0)).sum(1),
}


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_divergence_of_a_gaussian_is_known_by_its_algebra(name: str, sign: int) -> None:
    def loss(z: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return F.mse_loss(z, v) + sign * DIVERGENCES[name](*gaussian(z)).mean()

    followers, out = followed(loss)
    assert sorted(followers.signs.of(out).values()) == sorted([1, sign])
    assert [t.divergence for t in followers.signs.wrong(out)] == [True] * (sign < 0)


@pytest.mark.parametrize(
    "loss",
    [
        lambda m, s: (m - s).square().mean() - s.exp().mean(),
        lambda m, s: (0.5 * s + 0.5 * m.square() / s.exp()).mean(),
        lambda m, s: (s.exp() - s).mean(),
        lambda m, s: (m.square() + s.exp()).mean(),
        lambda m, s: (m.square() - s.exp() + s).mean(),
        lambda m, s: (m.pow(s.abs() + 2) - s.exp() + s).mean(),
        lambda m, s: -D.kl_divergence(D.Normal(m, s.exp()), D.Normal(s, m.exp())).mean(),
        lambda m, s: -D.kl_divergence(D.Normal(m, 1.0), D.Normal(s, 1.0)).mean(),
    ],
)
def test_what_is_no_divergence_is_not_taken_for_one(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    followers, out = followed(lambda z, y, v: loss(*gaussian(z)))
    assert not followers.signs.of(out)


def units(*several: Tensor) -> list[Tensor]:
    return [F.normalize(one, dim=-1) for one in several]


def scores(a: Tensor, b: Tensor) -> Tensor:
    one, other = units(a, b)
    return one @ other.T


PULLING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine_similarity": lambda a, b: F.cosine_similarity(a, b).mean(),
    "product": lambda a, b: torch.mul(*units(a, b)).sum(-1).mean(),
    "einsum": lambda a, b: torch.einsum("nd,nd->n", *units(a, b)).mean(),
    "diagonal of einsum": lambda a, b: torch.einsum("nd,md->nm", *units(a, b)).diagonal().mean(),
    "diagonal": lambda a, b: scores(a, b).diag().mean(),
    "trace": lambda a, b: scores(a, b).trace() / 8,
    "all pairs": lambda a, b: scores(a, b).mean(),
    "bmm": lambda a, b: torch.bmm(*(u.unsqueeze(i) for u, i in zip(units(a, b), (1, 2), strict=True))).mean(),
    "over both lengths": lambda a, b: ((a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1) + 1e-8)).mean(),
    "over one and the other": lambda a, b: ((a * b).sum(-1) / a.norm(dim=-1).clamp(min=1e-8) / b.norm(dim=-1)).mean(),
    "of one unit vector": lambda a, b: ((F.normalize(a, dim=-1) * b).sum(-1) / b.norm(dim=-1)).mean(),
    "embedding loss": lambda a, b: -F.cosine_embedding_loss(a, b, torch.ones(8)),
}
NOT_PULLING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "detached": lambda a, b: F.cosine_similarity(a, b.detach()).mean(),
    "detached matrix": lambda a, b: scores(a, b.detach()).diagonal().mean(),
    "detached embedding loss": lambda a, b: -F.cosine_embedding_loss(a, b.detach(), torch.ones(8)),
    "embedding loss of unlike pairs": lambda a, b: -F.cosine_embedding_loss(a, b, torch.ones(8).mul_(-1).abs_().neg_()),
    "without lengths": lambda a, b: (a * b).sum(-1).mean(),
    "over one length": lambda a, b: ((a * b).sum(-1) / a.norm(dim=-1)).mean(),
    "contrast": lambda a, b: -F.cross_entropy(scores(a, b), torch.arange(8)),
    "contrast by hand": lambda a, b: (scores(a, b).diagonal() - scores(a, b).logsumexp(1)).mean(),
    "contrast of one matrix": lambda a, b: (lambda s: (s.diagonal() - s.logsumexp(1)).mean())(scores(a, b)),
    "log-softmax": lambda a, b: scores(a, b).log_softmax(1).diagonal().mean(),
    "negatives": lambda a, b: (lambda s: s.diagonal().mean() - s.mean())(scores(a, b)),
    "weighed": lambda a, b: (scores(a, b) * (2 * torch.eye(8) - 1)).mean(),
    "negatives shifted": lambda a, b: F.cosine_similarity(a, b).mean() - F.cosine_similarity(a, b.roll(1, 0)).mean(),
    "beside another term": lambda a, b: F.cosine_similarity(a, b).mean() - a.T.cov().square().mean(),
}


def pulls(of: Callable[[Tensor, Tensor], Tensor]) -> bool:
    def loss(z: Tensor, y: Tensor, v: Tensor) -> Tensor:
        weight = torch.eye(5, requires_grad=True)
        return 1 - of(v @ weight, (2 * v) @ weight)

    followers, out = followed(loss)
    return bool(followers.signs.pulled(out))


@pytest.mark.parametrize("name", PULLING)
def test_outputs_that_are_only_pulled_together(name: str) -> None:
    assert pulls(PULLING[name])


@pytest.mark.parametrize("name", NOT_PULLING)
def test_outputs_that_something_keeps_apart(name: str) -> None:
    assert not pulls(NOT_PULLING[name])
