"""The operation that made a loss NaN or infinite in the first step."""

import inspect
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog.alerts import Alert
from sanity_watchdog.observe.culprits import Culprits
from sanity_watchdog.observe.operation import Operation
from tests.runs import Classifier, Manual, loader, watched


def masked(z: Tensor, y: Tensor) -> Tensor:
    shut = (torch.arange(len(y)) == 2)[:, None]
    return (z.masked_fill(shut, -torch.inf).softmax(1) * z).mean()


LOSSES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "mask": (masked, "softmax of a row that is masked throughout"),
    "logarithm of scores": (lambda z, y: F.nll_loss(torch.log(z), y), "log of negative values, down to -"),
    "logarithm of nothing": (lambda z, y: (0 * z.exp()).log().mean(), "log of 0"),
    "exponential": (lambda z, y: (1e4 * z).exp().mean(), "exp of "),
    "root": (lambda z, y: z.sqrt().mean(), "sqrt of -"),
    "division": (lambda z, y: (z / (z.relu() * 0)).mean(), "a division by 0"),
    "reciprocal": (lambda z, y: (1 / (z * 0)).mean(), "a division by 0"),
    "angle": (lambda z, y: (1.5 + z.sigmoid()).acos().mean(), "acos of 1."),
    "rate": (lambda z, y: F.poisson_nll_loss(z[:, 0], y.float(), log_input=False), "rates down to -"),
    "sum in half": (lambda z, y: (z.square() + 9_000).half().sum().float(), "sum in float16 of values up to 90"),
    "cast to half": (
        lambda z, y: F.mse_loss(z[:, 0], (y * 3e5 + 7e4).half().float()),
        "half in float16 of values up to ",
    ),
    "nothing": (lambda z, y: F.l1_loss(z[y > 9], z[y > 9] * 2), "l1_loss of no values"),
    "weights": (lambda z, y: F.cross_entropy(z, y, torch.zeros(5)), "weights that sum to 0"),
}


def run(loss: Callable[[Tensor, Tensor], Tensor], kind: type[Classifier] = Classifier) -> Alert:
    torch.manual_seed(0)
    dog = watched(kind(nn.Linear(6, 5), loss), loader(torch.randn(64, 6), torch.randint(0, 5, (64,))), max_steps=2)
    assert not dog.summary.broken
    return next(a for a in dog.alerts if a.code == "WD142")


@pytest.mark.parametrize("name", LOSSES)
def test_it_is_named_with_its_line(name: str) -> None:
    loss, words = LOSSES[name]
    alert = run(loss)
    assert words in alert.message
    assert alert.where.partition(":")[0].endswith("test_culprits.py")


def test_attention_over_nothing() -> None:
    attend = nn.MultiheadAttention(5, 1, batch_first=True)

    def loss(z: Tensor, y: Tensor) -> Tensor:
        x = z[:, None].expand(-1, 3, -1)
        return attend(x, x, x, key_padding_mask=(y == y[0])[:, None].expand(-1, 3))[0].mean()

    assert "masked throughout" in run(loss).message


def test_attention_over_nothing_that_the_loss_does_not_show() -> None:
    attend = nn.MultiheadAttention(5, 1, batch_first=True)

    def loss(z: Tensor, y: Tensor) -> Tensor:
        x = z[:, None].expand(-1, 3, -1)
        return attend(x, x, x, key_padding_mask=(y == y[0])[:, None].expand(-1, 3))[0].nan_to_num().mean()

    torch.manual_seed(0)
    module = Classifier(nn.Linear(6, 5), loss)
    dog = watched(module, loader(torch.randn(64, 6), torch.randint(0, 5, (64,))), max_steps=2)
    alert = next(a for a in dog.alerts if a.code == "WD211")
    assert "masked throughout" in alert.message
    assert "leave a key open" in alert.hint


def test_weights_of_which_a_batch_meets_none_but_zeros() -> None:
    weight = torch.tensor([1.0, 0, 0, 0, 0])
    labels = torch.cat([torch.zeros(96), torch.ones(32)]).long()
    module = Classifier(nn.Linear(6, 5), lambda z, y: F.cross_entropy(z, y, weight))
    dog = watched(module, loader(torch.randn(128, 6), labels, shuffle=False), max_steps=5)
    alert = next(a for a in dog.alerts if a.code == "WD142")
    assert "class weights of 0" in alert.message
    assert "above 0" in alert.hint


def test_a_line_of_a_function_is_the_users() -> None:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        spread = (1e4 * z).exp()
        return (spread - spread.square()).mean()

    line = inspect.getsourcelines(loss)[1] + 1
    assert run(loss).where.endswith(f":{line}")


def test_infinity_that_does_no_harm_and_what_came_in_broken_are_no_culprits() -> None:
    zero, nan, masked_scores = torch.zeros(3), torch.tensor([1.0, torch.nan]), torch.tensor([[-torch.inf, 1.0]])
    culprits = Culprits()
    for function, args, out in (
        (torch.softmax, (masked_scores, 1), masked_scores.softmax(1)),
        (torch.log_softmax, (masked_scores, 1), masked_scores.log_softmax(1)),
        (torch.exp, (nan,), nan.exp()),
        (torch.add, (zero, 1), zero / zero),
        (torch.exp_, (zero,), zero),
    ):
        culprits.follow(Operation(function, args, {}, out))
    assert culprits.first() is None
    culprits.follow(Operation(torch.div, (torch.ones(3), zero), {}, torch.ones(3) / zero))
    found = culprits.first()
    assert found is not None
    assert (found.operation, found.low) == ("div", 0)


def test_manual_optimisation_returns_no_loss_to_ask_about() -> None:
    with pytest.raises(StopIteration):
        run(LOSSES["root"][0], Manual)
