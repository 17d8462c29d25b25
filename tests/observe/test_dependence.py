"""Dependence asked of real first steps: what is named, what is left alone, and why."""

from collections.abc import Callable
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.observe.obstacles import saved_tensor_hooks
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, mlp, watched

V, T, W, K, B = 32, 12, 16, 4, 24


class Encoder(nn.Module):
    """Over (B, T, W) features."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.inp = nn.Linear(5, W)
        layer = nn.TransformerEncoderLayer(W, 2, W, 0.0, batch_first=batch_first)
        self.body, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(W, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.inp(x)).mean(1))


class TimeFirst(nn.Module):
    """Sequences first, and right."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(5, W), nn.Linear(W, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x.transpose(0, 1))[0][-1])


class Decoder(nn.Module):
    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(V, W), nn.Embedding(T, W)
        self.block = nn.TransformerEncoderLayer(W, 2, W, 0.0, batch_first=True)
        self.head, self.causal = nn.Linear(W, V), causal

    def forward(self, ids: Tensor) -> Tensor:
        t = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(t) if self.causal else None
        return self.head(self.block(self.tokens(ids) + self.places(torch.arange(t)), src_mask=mask))


class Next(L.LightningModule):
    """Predicts the next token; ``layout`` is how the scores meet the loss."""

    def __init__(self, net: nn.Module, layout: str = "flat") -> None:
        super().__init__()
        self.net, self.layout = net, layout

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        ids = batch[0]
        if self.layout == "shifted after":
            scores = self.net(ids)[:, :-1]
        else:
            scores = self.net(ids[:, :-1])
        target = ids[:, 1:]
        if self.layout == "classes second":
            return F.cross_entropy(scores.transpose(1, 2), target)
        if self.layout == "reshaped":
            return F.cross_entropy(scores.reshape(len(ids), V, -1), target)
        if self.layout == "padded":
            target = target.masked_fill(torch.arange(target.shape[1]) > 6, -100)
        return F.cross_entropy(scores.flatten(0, 1), target.flatten())

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 1e-3)


class MaskedByHand(nn.Module):
    """Attention whose mask nobody takes."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(V, W), nn.Linear(W, V)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        scores = x @ x.mT / W**0.5
        scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(1), -torch.inf)
        return self.head(x + scores.softmax(-1) @ x)


class Masked(Next):
    """Predicts hidden tokens from both sides: nothing is shifted."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        ids = batch[0][:, :-1]
        hidden = torch.rand(ids.shape) < 0.3
        scores = self.net(ids.masked_fill(hidden, 0))
        return F.cross_entropy(scores.flatten(0, 1), ids.masked_fill(~hidden, -100).flatten())


def sequences(n: int = 64) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 10, 5), torch.randint(0, K, (n,))


def text(n: int = 32) -> Tensor:
    return torch.randint(1, V, (n, T))


@pytest.mark.parametrize(
    ("net", "found"),
    [(Encoder(batch_first=False), True), (Encoder(), False), (TimeFirst(), False)],
    ids=["wrong axis", "right axis", "time first"],
)
def test_mixed_samples(net: nn.Module, found: bool) -> None:
    for module in (Classifier(net), Manual(net)):
        dog = watched(module, loader(*sequences(), batch_size=16), max_steps=1)
        assert_awake(dog)
        assert ("WD131" in codes(dog)) == found
        assert "WD131" in dog.summary.judged


@pytest.mark.parametrize("layout", ["flat", "classes second", "shifted after", "padded"])
@pytest.mark.parametrize("causal", [True, False])
def test_the_future(layout: str, causal: bool) -> None:
    dog = watched(Next(Decoder(causal), layout), loader(text(), batch_size=8), max_steps=1)
    assert_awake(dog)
    assert ("WD132" in codes(dog)) == (not causal)
    assert "WD132" in dog.summary.judged


def test_a_causal_mask_over_the_samples() -> None:
    net = Decoder()
    net.block = nn.TransformerEncoderLayer(W, 2, W, 0.0, batch_first=False)
    real = nn.Transformer.generate_square_subsequent_mask(B)
    forward = net.block.forward
    net.block.forward = lambda x, src_mask: forward(x, src_mask=real)  # type: ignore[method-assign]
    ids = torch.randint(1, V, (4 * B, T))
    assert "WD131" in codes(watched(Next(net), loader(ids, batch_size=B)))


class Forecast(L.LightningModule):
    """Predicts the next value of a series."""

    def __init__(self, both_ways: bool) -> None:
        super().__init__()
        self.inp = nn.Linear(3, W)
        self.rnn = nn.GRU(W, W, batch_first=True, bidirectional=both_ways)
        self.head = nn.Linear(2 * W if both_ways else W, 3)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x = batch[0]
        return F.mse_loss(self.head(self.rnn(self.inp(x[:, :-1]))[0]), x[:, 1:])

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 1e-3)


class OneHot(nn.Module):
    def __init__(self, both_ways: bool) -> None:
        super().__init__()
        self.inp = nn.Linear(V, W)
        self.rnn = nn.GRU(W, W, batch_first=True, bidirectional=both_ways)
        self.head = nn.Linear(2 * W if both_ways else W, V)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn(self.inp(F.one_hot(ids, V).float()))[0])


@pytest.mark.parametrize("both_ways", [True, False])
def test_the_future_of_values_and_of_one_hot_rows(both_ways: bool) -> None:
    for module, data in (
        (Forecast(both_ways), torch.randn(32, T, 3)),
        (Next(OneHot(both_ways)), text()),
    ):
        dog = watched(module, loader(data, batch_size=8), max_steps=1)
        assert_awake(dog)
        assert ("WD132" in codes(dog)) == both_ways
        assert "WD132" in dog.summary.judged


class Series(nn.Module):
    """Convolves (B, T, 3) values; ``left`` positions are padded before the first one, the rest after the last one."""

    def __init__(self, left: int, kernel: int = 5) -> None:
        super().__init__()
        self.mix, self.head, self.left, self.right = nn.Conv1d(3, W, kernel), nn.Linear(W, 3), left, kernel - 1 - left

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(x.transpose(1, 2), (self.left, self.right))
        return self.head(torch.relu(self.mix(padded)).transpose(1, 2))


class Direct(nn.Module):
    """A recurrence that the series enters first."""

    def __init__(self, both_ways: bool) -> None:
        super().__init__()
        self.cell = nn.LSTM(3, W, 2, batch_first=True, dropout=0.2, bidirectional=both_ways)
        self.head = nn.Linear(2 * W if both_ways else W, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0])


@pytest.mark.parametrize(
    ("net", "ahead"), [(Series(4), False), (Series(2), True), (Direct(False), False), (Direct(True), True)]
)
def test_the_future_of_series_that_enter_by_a_layer_over_time(net: nn.Module, ahead: bool) -> None:
    x = torch.randn(32, T, 3)
    whole = Classifier(net, F.mse_loss), loader(x[:, :-1], x[:, 1:], batch_size=8)
    column = Classifier(net, lambda z, y: F.l1_loss(z[..., 1], y)), loader(x[:, :-1], x[:, 1:, 1], batch_size=8)
    channels = (
        Classifier(net, lambda z, y: F.mse_loss(z.transpose(1, 2), y)),
        loader(x[:, :-1], x[:, 1:].transpose(1, 2), batch_size=8),
    )
    for module, data in (whole, column, channels):
        dog = watched(module, data, max_steps=1)
        assert_awake(dog)
        assert ("WD132" in codes(dog)) == ahead
        assert "WD132" in dog.summary.judged


def test_running_a_layer_again_changes_nothing() -> None:
    x, found = torch.randn(32, T, 3), []
    for select in (("WD132",), ("WD142",)):
        torch.manual_seed(0)
        module = Classifier(Direct(True), F.mse_loss)
        watchdog = SanityWatchdog(select=select, fail_on=None)
        watched(module, loader(x[:, :-1], x[:, 1:], shuffle=False), watchdog=watchdog, max_steps=3)
        found.append((module.state_dict(), torch.rand(3)))
    assert all(torch.equal(found[0][0][k], found[1][0][k]) for k in found[0][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize(
    ("module", "data", "hint"),
    [
        (Classifier(Direct(True), F.mse_loss), None, "net.cell runs both ways"),
        (Classifier(Series(2), F.mse_loss), None, "pads after the last position"),
        (Next(Decoder(causal=False)), text(), "net.block.self_attn has none"),
        (Next(Decoder(), "reshaped"), text(), "test_dependence.py"),
        (Next(MaskedByHand()), text(), "take the result: masked_fill at"),
    ],
)
def test_the_hint_names_what_looks_ahead(module: Any, data: Tensor | None, hint: str) -> None:
    x = torch.randn(32, T, 3)
    batches = loader(x[:, :-1], x[:, 1:], batch_size=8) if data is None else loader(data, batch_size=8)
    (alert,) = (a for a in watched(module, batches, max_steps=1).alerts if a.code == "WD132")
    assert hint in alert.hint


class Anew(Next):
    """Writes a text anew from one summary, or with the text before its eyes."""

    def __init__(self, copies: bool) -> None:
        super().__init__(nn.GRU(W, W, batch_first=True))
        self.tokens, self.writer, self.head = nn.Embedding(V, W), nn.GRU(W, W, batch_first=True), nn.Linear(W, V)
        self.copies = copies

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        ids = batch[0]
        told = self.tokens(ids)
        summary = self.net(told)[1]
        heard = told if self.copies else summary.transpose(0, 1).repeat(1, ids.shape[1], 1)
        return F.cross_entropy(self.head(self.writer(heard, summary if not self.copies else None)[0]).mT, ids)


@pytest.mark.parametrize("copies", [True, False])
def test_targets_equal_to_the_input_are_a_fault_only_where_nothing_later_is_seen(copies: bool) -> None:
    dog = watched(Anew(copies), loader(text(64), batch_size=16), loader(text(), batch_size=16), max_steps=1)
    assert_awake(dog)
    assert ("WD112" in codes(dog)) == copies


class Last(nn.Module):
    def __init__(self, batch_first: bool, turn: bool = False) -> None:
        super().__init__()
        self.rnn, self.head, self.turn = nn.LSTM(5, W, batch_first=batch_first), nn.Linear(W, K), turn

    def forward(self, x: Tensor) -> Tensor:
        if self.turn:
            return self.head(self.rnn(x.transpose(0, 1))[0][-1])
        return self.head(self.rnn(x)[0][:, -1])


@pytest.mark.parametrize(("net", "found"), [(Last(False), True), (Last(True), False), (Last(False, True), False)])
def test_a_recurrent_layer_that_takes_the_batch_for_time(net: nn.Module, found: bool) -> None:
    dog = watched(Classifier(net), loader(*sequences(), batch_size=16), max_steps=1)
    assert_awake(dog)
    assert ("WD131" in codes(dog)) == found


class Reordered(nn.Module):
    """Brings time to the front, rightly or by a reshape: before its first layer or after it."""

    def __init__(self, right: bool, early: bool, width: int = W) -> None:
        super().__init__()
        self.inp, self.rnn, self.head = nn.Linear(5, width), nn.GRU(width, W), nn.Linear(W, K)
        self.right, self.early = right, early

    def turn(self, x: Tensor) -> Tensor:
        n, t, d = x.shape
        return x.transpose(0, 1) if self.right else x.reshape(t, n, d)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inp(self.turn(x)) if self.early else self.turn(self.inp(x))
        return self.head(self.rnn(h)[0][-1])


class Summary(nn.Module):
    """A token without data attends along the wrong axis: to those of other samples, which are equal."""

    def __init__(self, batch_first: bool, zero: bool = False) -> None:
        super().__init__()
        self.inp, self.token, self.head = nn.Linear(5, W), nn.Parameter(torch.zeros(1, 1, W)), nn.Linear(W, K)
        self.body = nn.TransformerEncoderLayer(W, 2, W, 0.0, batch_first=batch_first)
        if zero:
            nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(torch.cat([self.token.expand(len(x), -1, -1), self.inp(x)], 1))[:, 0])


@pytest.mark.parametrize(
    ("net", "found"), [(Summary(False), True), (Summary(True), False), (Summary(True, True), False)]
)
def test_a_summary_that_sees_no_sample_at_all(net: nn.Module, found: bool) -> None:
    x, y = sequences()
    dog = watched(Classifier(net), loader(x, y), max_steps=2)
    assert_awake(dog)
    assert ("WD131" in codes(dog)) is found
    if found:
        assert "batch_first=True" in next(a.hint for a in dog.alerts if a.code == "WD131")


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_a_reshape_in_place_of_a_transpose(right: bool, early: bool) -> None:
    dog = watched(Classifier(Reordered(right, early)), loader(*sequences(128), batch_size=32), max_steps=1)
    assert_awake(dog)
    assert ("WD131" in codes(dog)) != right
    if not right:
        (alert,) = (a for a in dog.alerts if a.code == "WD131")
        assert "keeps the order in memory" in alert.hint


class Back(nn.Module):
    """Brings the samples to the front again, rightly or by a view."""

    def __init__(self, right: bool) -> None:
        super().__init__()
        self.rnn, self.head, self.right = nn.GRU(5, W), nn.Linear(W, K), right

    def forward(self, x: Tensor) -> Tensor:
        out = self.rnn(x.transpose(0, 1))[0]
        return self.head((out.transpose(0, 1) if self.right else out.view(*x.shape[:2], -1))[:, -1])


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("size", [20, 21, 32])
def test_a_view_in_place_of_a_transpose_behind_a_recurrence(size: int, right: bool) -> None:
    dog = watched(Classifier(Back(right)), loader(*sequences(96), batch_size=size), max_steps=1)
    assert_awake(dog)
    assert ("WD131" in codes(dog)) != right


class Flat(nn.Module):
    """A number for each step of each sample, time first, as one row."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(5, W), nn.Linear(W, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x.permute(1, 0, 2))[0]).view(-1)


@pytest.mark.parametrize("right", [True, False])
def test_scores_and_targets_in_two_orders(right: bool) -> None:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(z, (y.T if right else y).reshape(-1))

    x, _ = sequences(96)
    dog = watched(Classifier(Flat(), loss), loader(x, x.sum(2), batch_size=24), max_steps=1)
    assert_awake(dog)
    assert ("WD131" in codes(dog)) != right


class Following(Classifier):
    """The samples of a batch follow each other: each is predicted from the one before."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x = batch[0]
        return F.mse_loss(self.net(x[:-1]), x[1:])


class Halves(Classifier):
    """One half of the batch is predicted from the other."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        a, b = batch[0].chunk(2)
        return F.mse_loss(self.net(a), b)


@pytest.mark.parametrize("kind", [Following, Halves])
def test_samples_that_are_the_targets_of_others(kind: type[Classifier]) -> None:
    dog = watched(kind(mlp(5, 5)), loader(torch.randn(64, 5)), max_steps=1)
    assert_awake(dog)
    assert "WD131" not in codes(dog)


class Shuffled(Classifier):
    """``step`` gets the network, the batch and a permutation."""

    def __init__(self, step: Callable[[Any, Tensor, Tensor, Tensor], Tensor], norm: bool) -> None:
        layers = [nn.Linear(20, 32), nn.BatchNorm1d(32) if norm else nn.Identity(), nn.ReLU(), nn.Linear(32, 10)]
        super().__init__(nn.Sequential(*layers))
        self.step = step

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return self.step(self.net, x, y, torch.randperm(len(x), generator=torch.Generator().manual_seed(1)))


def mixup(net: Any, x: Tensor, y: Tensor, order: Tensor) -> Tensor:
    scores = net(0.7 * x + 0.3 * x[order])
    return 0.7 * F.cross_entropy(scores, y) + 0.3 * F.cross_entropy(scores, y[order])


def cutmix(net: Any, x: Tensor, y: Tensor, order: Tensor) -> Tensor:
    x = x.clone()
    x[:, 5:15] = x[order, 5:15]
    scores = net(x)
    return 0.5 * F.cross_entropy(scores, y) + 0.5 * F.cross_entropy(scores, y[order])


def hidden_mixup(net: Any, x: Tensor, y: Tensor, order: Tensor) -> Tensor:
    hidden = net[:3](x)
    scores = net[3](0.3 * hidden + 0.7 * hidden[order])
    return 0.3 * F.cross_entropy(scores, y) + 0.7 * F.cross_entropy(scores, y[order])


def of_pairs(net: Any, x: Tensor, y: Tensor, order: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits((net(x) * net(x[order])).sum(1), (y == y[order]).float())


@pytest.mark.parametrize("norm", [True, False], ids=["batch norm", "no norm"])
@pytest.mark.parametrize(
    ("step", "found"),
    [
        (lambda net, x, y, order: F.cross_entropy(net(x), y[order]), True),
        (lambda net, x, y, order: F.cross_entropy(net(x.index_select(0, order)), y), True),
        (lambda net, x, y, order: F.cross_entropy(net(x), y.flip(0)), True),
        (lambda net, x, y, order: F.cross_entropy(net(x[order]), y[order]), False),
        (lambda net, x, y, order: F.cross_entropy(net(x[y < 7]), y[y < 7]), False),
        (lambda net, x, y, order: F.cross_entropy(net(x)[order], y[order]), False),
        (lambda net, x, y, order: F.cross_entropy(net(x[order]), y[torch.arange(len(y))[order]]), False),
        (mixup, False),
        (cutmix, False),
        (hidden_mixup, False),
        (of_pairs, False),
    ],
    ids=["labels", "inputs", "turned", "both", "some", "after", "numbers", "mixup", "cutmix", "hidden", "pairs"],
)
def test_labels_in_another_order(step: Any, found: bool, norm: bool) -> None:
    dog = watched(Shuffled(step, norm), loader(*blobs()), max_steps=2)
    assert codes(dog) == (["WD131"] if found else [])
    assert_awake(dog)


@pytest.mark.parametrize("size", [16, 10])
def test_a_batch_whose_time_comes_first_is_known_by_its_size(size: int) -> None:
    def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return torch.stack([x for x, _ in rows], 1), torch.stack([y for _, y in rows])

    net = Last(batch_first=False)
    net.forward = lambda x: net.head(net.rnn(x)[0][-1])  # type: ignore[method-assign]
    dog = watched(Classifier(net), loader(*sequences(), batch_size=size, collate_fn=collate), max_steps=1)
    assert_awake(dog)
    assert "WD131" not in codes(dog)


def test_mixed_samples_of_a_regression() -> None:
    x, _ = sequences()
    for first in (True, False):
        module = Classifier(Encoder(first), lambda z, y: F.mse_loss(z[:, 0], y))
        dog = watched(module, loader(x, torch.randn(64), batch_size=16), max_steps=1)
        assert_awake(dog)
        assert ("WD131" in codes(dog)) != first


def test_masked_tokens_may_be_seen_from_both_sides() -> None:
    torch.manual_seed(0)
    dog = watched(Masked(Decoder(causal=False)), loader(text(), batch_size=8), max_steps=1)
    assert_awake(dog)
    assert "WD132" not in codes(dog)
    assert "WD132" in dog.summary.skipped


class Variational(L.LightningModule):
    """The encoder's code tells the decoder of the whole text."""

    def __init__(self, causal: bool, each: bool = False) -> None:
        super().__init__()
        self.net, self.token, self.each = Decoder(causal), nn.Embedding(V, W), each
        self.reader = nn.GRU(W, W, batch_first=True, bidirectional=each)
        self.moments = nn.Linear(W * (2 if each else 1), 2 * W)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        ids, net = batch[0], self.net
        states, last = self.reader(self.token(ids))
        mean, logvar = self.moments(states[:, :-1] if self.each else last[0][:, None]).chunk(2, -1)
        code = mean + torch.randn_like(mean) * (logvar / 2).exp()
        hidden = net.tokens(ids[:, :-1]) + code
        mask = nn.Transformer.generate_square_subsequent_mask(T - 1) if net.causal else None
        scores = net.head(net.block(hidden, src_mask=mask))
        return F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 1e-3)


@pytest.mark.parametrize(("causal", "each"), [(True, False), (False, False), (True, True)])
def test_a_code_of_the_whole_text_may_tell_of_later_tokens(causal: bool, each: bool) -> None:
    torch.manual_seed(0)
    dog = watched(Variational(causal, each), loader(text(), batch_size=8), max_steps=1)
    assert_awake(dog)
    assert ("WD132" in codes(dog)) == (not causal or each)
    assert "WD132" in dog.summary.judged


class Forgetful(nn.Module):
    """Looks at the batch, then returns something else."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.constant = mlp(), nn.Parameter(torch.randn(1, 10))

    def forward(self, x: Tensor) -> Tensor:
        self.net(x)
        return self.constant.expand(len(x), 10) * 1.0


def test_an_input_that_is_ignored() -> None:
    dog = watched(Classifier(Forgetful()), max_steps=1)
    assert_awake(dog)
    assert "WD133" in codes(dog)


class Drawn(nn.Module):
    """Scores of noise of the batch's shape, and of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.shift = mlp(), nn.Buffer(torch.randn(20))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.randn(len(x), 20) + torch.zeros_like(x) + self.shift)


class Padded(nn.Module):
    """Copies the batch into room that it made, or into a part of it."""

    def __init__(self, part: bool) -> None:
        super().__init__()
        self.net, self.part = mlp(30), part

    def forward(self, x: Tensor) -> Tensor:
        room = torch.zeros(len(x), 30)
        if self.part:
            room[:, :20].copy_(x)
        else:
            room[:, :20] = x
        return self.net(room)


class Aliased(nn.Module):
    """Copies the batch into memory of which it already holds a view."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor) -> Any:
        room = torch.zeros(len(x), 20)
        view = room.view(-1, 20)
        room[:] = x
        return self.net(view)


class ByNumbers(nn.Module):
    """Reads one number of each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor) -> Any:
        return self.net(torch.stack([torch.full((20,), float(row[0])) for row in x]))


class Vectorised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor) -> Any:
        return torch.vmap(self.net)(x)


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.jit.script(nn.Linear(20, 16)), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.first(x))


class ByKey(nn.Module):
    """The batch only says which of some kept features are meant."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.kept = mlp(), {i: torch.randn(20) for i in range(32)}

    def forward(self, x: Tensor) -> Any:
        return self.net(torch.stack([self.kept[int(row[0] * 4) % 32] for row in x]))


class ByKeyFromHost(ByKey):
    def forward(self, x: Tensor) -> Any:
        return self.net(torch.tensor([self.kept[int(row[0] * 4) % 32].tolist() for row in x]))


def test_noise_in_place_of_the_batch() -> None:
    dog = watched(Classifier(Drawn()), max_steps=1)
    assert_awake(dog)
    assert "WD133" in codes(dog)


@pytest.mark.parametrize(
    "make",
    [lambda: Padded(False), lambda: Padded(True), Aliased, ByNumbers, Vectorised, Scripted, ByKey, ByKeyFromHost],
)
def test_data_that_come_by_another_way_are_not_called_ignored(make: Any) -> None:
    dog = watched(Classifier(make()), max_steps=1)
    assert_awake(dog)
    assert "WD133" not in codes(dog)


class ThroughNumpy(nn.Module):
    """Frozen features that are cut off by NumPy."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = nn.Linear(20, 16).requires_grad_(False), nn.Linear(16, 10)
        self.scale = nn.Parameter(torch.ones(20))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.from_numpy(self.features(x * self.scale).detach().numpy().clip(-1, 1)))


def test_data_that_went_through_numpy_are_not_called_ignored() -> None:
    dog = watched(Classifier(ThroughNumpy()), max_steps=1)
    assert_awake(dog)
    assert "WD133" not in codes(dog)
    assert "host" in dog.summary.skipped["WD133"]


class Mixing(nn.Module):
    """Mixes hidden features of pairs on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(20, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.a(x))
        return self.b(0.7 * h + 0.3 * h[torch.randperm(len(h))])


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.a, self.b, self.reentrant = nn.Linear(20, 16), nn.Linear(16, 16), reentrant
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.b, self.a(x), use_reentrant=self.reentrant))


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad.mul_(2)


class Custom(nn.Module):
    def __init__(self, hook: bool) -> None:
        super().__init__()
        self.a, self.b, self.hook = nn.Linear(20, 16), nn.Linear(16, 10), hook

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        if self.hook:
            h.register_hook(lambda g: g * 2)
            return self.b(h)
        return self.b(Twice.apply(h))


class Neighbours(nn.Module):
    """Averages over a graph whose nodes are the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(20, 16), nn.Linear(16, 10)
        self.register_buffer("links", torch.rand(32, 32))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.links @ self.a(x))


NORM = nn.Sequential(nn.Linear(20, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (NORM, "BatchNorm mixes"),
        (Mixing(), ""),
        (Checkpointed(reentrant=False), "hooks"),
        (Checkpointed(reentrant=True), ""),
        (Custom(hook=True), "hook"),
        (Custom(hook=False), "custom autograd function"),
        (Neighbours(), "a graph"),
    ],
    ids=["batch norm", "pairs", "checkpoint", "reentrant", "hook", "function", "graph"],
)
def test_what_is_meant_or_may_not_be_asked_is_left_alone(net: nn.Module, reason: str) -> None:
    dog = watched(Classifier(net), loader(*blobs(64)), max_steps=1)
    assert_awake(dog)
    assert not {"WD131", "WD133"} & set(codes(dog))
    if reason:
        assert reason in dog.summary.skipped["WD131"]


class OfNodes(Classifier):
    """One graph is a batch: ``links`` (32, 32) between its nodes, and their features, or the links as features."""

    def __init__(self, forward: Callable[..., Tensor]) -> None:
        super().__init__(nn.ModuleList([nn.Linear(32, 16), nn.Linear(16, 10), nn.Linear(16, 2)]))
        self.of_net = forward

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        *data, y = batch
        return F.cross_entropy(self.of_net(self.net, *data), y)


def convolution(net: Any, x: Tensor, links: Tensor) -> Tensor:
    return net[1](links @ net[0](x).relu())


def normalised(net: Any, x: Tensor, links: Tensor) -> Tensor:
    root = links.sum(1).rsqrt()
    return net[1](torch.mm(root[:, None] * links * root, net[0](x).relu()))


def contracted(net: Any, x: Tensor, links: Tensor) -> Tensor:
    return net[1](torch.einsum("ij,jk->ik", links, net[0](x).relu()))


def without_features(net: Any, links: Tensor) -> Tensor:
    return net[1](links @ net[0](links).relu())


def without_weights_first(net: Any, links: Tensor) -> Tensor:
    return net[1](links @ (links @ net[0].weight.T).relu())


def attended(net: Any, links: Tensor) -> Tensor:
    h = net[0](links)
    to, of = net[2](h).split(1, 1)
    return net[1]((to + of.T).masked_fill(links < 0.5, -9e15).softmax(1) @ h)


@pytest.mark.parametrize(
    "forward", [convolution, normalised, contracted, without_features, without_weights_first, attended]
)
def test_nodes_of_a_graph_see_each_other(forward: Callable[..., Tensor]) -> None:
    rows = [(torch.randn(32, 32), torch.rand(32, 32), torch.randint(0, 10, (32,))) for _ in range(4)]
    featured = forward in (convolution, normalised, contracted)
    dog = watched(OfNodes(forward), DataLoader([r if featured else r[1:] for r in rows], batch_size=None), max_steps=1)
    assert_awake(dog)
    assert "WD131" not in codes(dog)
    assert "WD131" in dog.summary.skipped


class Rows(nn.Module):
    """A recurrence over the rows of 32 features, as many as there are samples."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        self.a, self.b, self.mixes = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 10), mixes

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 4, 8)
        x = x.reshape(4, -1, 8).transpose(0, 1) if self.mixes else x
        return self.b(self.a(x)[0][:, -1])


def test_as_many_features_as_samples_make_no_graph() -> None:
    assert codes(watched(Classifier(Rows(mixes=True)), loader(*blobs(64, d=32)), max_steps=1)) == ["WD131"]
    for net in (Rows(mixes=False), nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10))):
        dog = watched(Classifier(net), loader(*blobs(64, d=32)), max_steps=1)
        assert not codes(dog)
        assert "WD131" in dog.summary.judged


class Jagged(nn.Module):
    """Rows of one tensor that have lengths of their own, taken apart again."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 16), nn.Linear(16, K)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.nested.nested_tensor([row[: 3 + i % 4] for i, row in enumerate(x)], layout=torch.jagged)
        return self.b(torch.stack([row.mean(0) for row in self.a(rows).unbind()]))


def test_tensors_of_another_kind_are_not_followed() -> None:
    dog = watched(Classifier(Jagged()), loader(*sequences()), max_steps=1)
    assert_awake(dog)
    assert not codes(dog)


class Inner(Classifier):
    """A step on the first half of the batch, then the loss of the second half."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        half, names = len(x) // 2, dict(self.net.named_parameters())
        slopes = torch.autograd.grad(self.loss(self.net(x[:half]), y[:half]), names.values(), create_graph=True)
        near = {n: p - 0.1 * g for (n, p), g in zip(names.items(), slopes, strict=True)}
        return self.loss(torch.func.functional_call(self.net, near, (x[half:],)), y[half:])


def test_scores_behind_an_inner_gradient_are_left_alone() -> None:
    dog = watched(Inner(), max_steps=1)
    assert_awake(dog)
    assert "WD131" not in codes(dog)
    assert "meta-learning" in dog.summary.skipped["WD131"]


class Contrastive(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        a, b = F.normalize(self.net(batch[0]), dim=-1), F.normalize(self.net(batch[0] + 0.1), dim=-1)
        return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a)))


def test_contrastive_losses_are_left_alone() -> None:
    dog = watched(Contrastive(), max_steps=1)
    assert_awake(dog)
    assert "WD131" not in codes(dog)
    assert "WD131" in dog.summary.skipped


@pytest.mark.parametrize("net", [Encoder(), Encoder(batch_first=False), NORM], ids=["quiet", "found", "norm"])
def test_asking_changes_no_gradient(net: nn.Module) -> None:
    data = blobs(64) if net is NORM else sequences()
    found = []
    for select in (("WD131",), ("WD142",)):
        torch.manual_seed(0)
        module = Classifier(torch.nn.Sequential(net))
        start = {k: v.clone() for k, v in module.state_dict().items()}
        watched(module, loader(*data, shuffle=False), watchdog=SanityWatchdog(select=select, fail_on=None), max_steps=2)
        found.append({k: v.clone() for k, v in module.state_dict().items()})
        module.load_state_dict(start)
    assert all(torch.equal(found[0][k], found[1][k]) for k in found[0])


@pytest.mark.parametrize("can_look", [True, False])
def test_hooks_on_saved_tensors_are_noticed_and_left_alone(monkeypatch: pytest.MonkeyPatch, can_look: bool) -> None:
    if not can_look:  # as before torch 2.8
        monkeypatch.delattr(torch._C._autograd, "_top_saved_tensors_default_hooks", raising=False)
    x, packed = torch.ones(2, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        assert saved_tensor_hooks()
        assert saved_tensor_hooks()
        (x * x).sum().backward()
    assert len(packed) == 2
    assert not saved_tensor_hooks()
    with torch.autograd.graph.disable_saved_tensors_hooks("not now"):
        assert not saved_tensor_hooks()
        assert torch._C._autograd._saved_tensors_hooks_get_disabled_error_message() == "not now"
    assert torch._C._autograd._saved_tensors_hooks_is_enabled()
