"""Recorded operators, strangers, shapes and host reads of real runs on the CPU, judged for other accelerators."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader

from sanity_watchdog import CompatibilityWatch
from sanity_watchdog.alerts import Severity
from sanity_watchdog.observe.recorder import Recorder
from sanity_watchdog.observe.strangers import Following
from tests.runs import Classifier, Manual, blobs, codes, loader, mlp, trainer, watched


def judged(module, *targets, data=None, validation=None, **kwargs):
    dog = CompatibilityWatch(fail_on=None, targets=targets or ("mps", "cuda"))
    watched(module, data, validation, watchdog=dog, **{"max_steps": 2, **kwargs})
    assert not dog.summary.broken, dog.summary.broken
    return dog


class Stepping(Classifier):
    """A classifier whose loss gets an extra term."""

    extra = staticmethod(lambda self, x: 0.0)

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) + self.extra(self, batch[0])


def stepping(term):
    module = Stepping()
    module.extra = term
    return module


def line(dog, code):
    (alert,) = [a for a in dog.alerts if a.code == code]
    return alert


# -- operators


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.emb = nn.Embedding(30, 16, padding_idx=0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, **options)
        self.head = nn.Linear(16, 10)

    def forward(self, tokens):
        return self.head(self.encoder(self.emb(tokens), src_key_padding_mask=tokens == 0)[:, 0])


def padded():
    tokens = torch.randint(1, 30, (64, 6))
    tokens[:, 4:] = 0
    return loader(tokens, torch.randint(0, 10, (64,)), shuffle=False)


def test_the_padded_encoder_is_reported_for_validation_only():
    dog = judged(Classifier(Attention()), "mps", data=padded(), validation=padded(), num_sanity_val_steps=1)
    alert = line(dog, "WD406")
    assert alert.subjects == ("aten::_nested_tensor_from_mask_left_aligned",)
    assert (alert.stage, alert.severity) == ("validation", Severity.ERROR)
    assert "enable_nested_tensor=False" in alert.hint
    assert "test_operators.py:" in alert.where
    assert f"torch {torch.__version__.partition('+')[0]}" in alert.message


def test_the_padded_encoder_is_fine_after_the_fix():
    net = Attention(enable_nested_tensor=False)
    dog = judged(Classifier(net), "mps", data=padded(), validation=padded(), num_sanity_val_steps=1)
    assert codes(dog) == []
    assert {"WD404", "WD405", "WD406", "WD407"} <= set(dog.summary.judged)


def test_training_alone_does_not_meet_the_operator():
    assert codes(judged(Classifier(Attention()), "mps", data=padded())) == []


class Convolutions(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Unflatten(1, (1, 4, 5)),
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.GELU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru, self.head = nn.LSTM(5, 8, 2, batch_first=True), nn.GRU(8, 8), nn.Linear(8, 10)

    def forward(self, x):
        h, _ = self.lstm(x.reshape(-1, 4, 5))
        return self.head(self.gru(h)[0][:, -1])


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(20, 2, batch_first=True), nn.LayerNorm(20)
        self.head = nn.Linear(20, 10)
        self.register_buffer("position", torch.arange(4.0)[:, None])

    def forward(self, x):
        h = x[:, None] + self.position
        h = self.norm(h + self.attention(h, h, h, need_weights=False)[0])
        mask = torch.ones(4, 4, dtype=torch.bool, device=x.device).tril()
        h = F.scaled_dot_product_attention(h, h, h, attn_mask=mask)
        return self.head(h.mean(1))


@pytest.mark.parametrize("net", [mlp, Convolutions, Recurrent, SelfAttention], ids=lambda n: n.__name__)
@pytest.mark.parametrize("make", [Classifier, Manual])
def test_ordinary_models_are_quiet_for_every_target(net, make):
    data = loader(*blobs(64), drop_last=True)
    dog = judged(
        make(net()), "mps", "cuda", "xpu", "tpu", data=data, validation=loader(*blobs(64)), num_sanity_val_steps=1
    )
    assert codes(dog) == []
    assert "WD406" in {*dog.summary.judged, *dog.summary.skipped}


def test_a_missing_operator_and_its_backward_are_named_with_the_users_line():
    dog = judged(stepping(lambda self, x: F.pdist(self.net(x)).mean() * 0.01), "mps")
    alert = line(dog, "WD406")
    assert alert.subjects == ("aten::_pdist_forward", "aten::_pdist_backward")
    assert "test_operators.py:" in alert.where
    assert "cdist" in alert.hint


def test_the_fallback_variable_turns_it_into_a_round_trip(monkeypatch):
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    dog = judged(stepping(lambda self, x: F.pdist(self.net(x)).mean() * 0.01), "mps")
    assert codes(dog) == ["WD407"]


def test_a_target_that_nobody_knows_is_skipped_aloud():
    dog = judged(Classifier(), "xla")
    reasons = dict(dog.summary.skipped)
    assert reasons["WD406"] == reasons["WD407"] == "tpu: torch_tpu is not installed"
    assert reasons["WD405"] == "every target has float64"


def test_without_a_target_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(Recorder, "__enter__", lambda self: pytest.fail("recorded"))
    monkeypatch.setattr(Following, "__enter__", lambda self: pytest.fail("followed"))
    dog = CompatibilityWatch(fail_on=None)
    watched(Classifier(), validation=loader(*blobs(64)), watchdog=dog, max_steps=2, num_sanity_val_steps=1)
    assert dict(dog.summary.skipped)["WD406"] == "no target given"
    assert not dog.summary.broken


def test_at_most_one_step_and_one_validation_batch_are_recorded(monkeypatch):
    entered = []
    enter = Recorder.__enter__
    monkeypatch.setattr(Recorder, "__enter__", lambda self: entered.append(1) or enter(self))
    data = loader(*blobs(256))
    judged(Classifier(), data=data, validation=data, max_steps=8, num_sanity_val_steps=2, val_check_interval=2)
    assert len(entered) == 3  # validation, forward, backward


def test_a_compiled_model_is_not_recorded():
    dog = CompatibilityWatch(fail_on=None, targets=("mps",))
    net = mlp()
    net.compile(backend="eager")
    watched(Classifier(net), watchdog=dog, max_steps=2)
    assert dict(dog.summary.skipped)["WD406"] == "compiled step"
    torch._dynamo.reset()


# -- identity


class Exotic(nn.Module):
    """Operators that choose another algorithm under a dispatch mode, and some that MPS lacks in every version."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.table = nn.Linear(20, 16), nn.Linear(16, 10), nn.Embedding(8, 16, max_norm=1.0)

    def forward(self, x):
        h = self.body(x) + self.table(torch.arange(len(x), device=x.device) % 8)
        m = h.reshape(-1, 4, 4)
        values = torch.linalg.svdvals(m).sum(-1) + torch.linalg.eigvalsh(m @ m.mT).sum(-1) + torch.linalg.cond(m).tanh()
        values = values + torch.linalg.eigvals(m.detach()).abs().sum(-1)
        return self.head(h) + (values + h.tanh().prod(-1))[:, None] * 0.1


class Noting(Classifier):
    def __init__(self, net):
        super().__init__(net)
        self.losses = []

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        self.losses.append(self.loss(self.net(batch[0]), batch[1]).item())


@pytest.mark.parametrize(
    ("net", "tokens"), [(Exotic, False), (Recurrent, False), (Attention, True)], ids=["exotic", "recurrent", "padded"]
)
def test_losses_and_weights_are_bit_identical_with_targets(net, tokens):
    def run(*callbacks):
        torch.manual_seed(3)
        data = padded() if tokens else loader(*blobs(64), shuffle=False)
        module = Noting(net())
        trainer(*callbacks, max_steps=3, num_sanity_val_steps=1).fit(module, data, data)
        return module

    dog = CompatibilityWatch(fail_on=None, targets=("mps", "tpu"))
    plain, seen = run(), run(dog)
    assert plain.losses == seen.losses
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), seen.parameters(), strict=True))
    assert not dog.summary.broken
    assert set(codes(dog)) == {Exotic: {"WD406", "WD407"}, Recurrent: set(), Attention: {"WD406"}}[net]


# -- tensors that stay behind


class Loose(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()
        self.mask = (torch.arange(20) % 5 != 0).float()
        self.tables = {"scale": [torch.ones(20)]}
        self.unused = torch.zeros(3)
        self.temperature = torch.tensor(2.0)
        self.prior = Normal(torch.zeros(20), torch.ones(20))
        self.add = partial(torch.add, torch.ones(20), alpha=2)
        self.register_buffer("shift", torch.zeros(20), persistent=False)

    def forward(self, x):
        x = (x * self.mask + self.shift) * self.tables["scale"][0]
        return self.body(self.add(x) + self.prior.loc) / self.temperature


def test_unregistered_tensors_are_warned_of_where_they_are_used():
    dog = judged(Classifier(Loose()), "cuda")
    used = next(a for a in dog.alerts if a.code == "WD404")
    assert set(used.subjects) >= {"net.mask", "net.tables['scale'][0]", "net.prior.loc", "net.add.args[0]"}
    assert used.severity is Severity.WARNING
    assert "test_operators.py:" in used.where
    assert "net.shift" not in used.subjects
    assert "net.temperature" not in used.subjects


def test_without_a_target_they_are_worth_knowing_only():
    dog = CompatibilityWatch(fail_on=None)
    watched(Classifier(Loose()), watchdog=dog, max_steps=1)
    assert codes(dog) == []
    assert codes(dog, Severity.INFO) == ["WD404"]


class Moving(nn.Module):
    """Unregistered, and moved by hand where it is needed."""

    def __init__(self):
        super().__init__()
        self.body, self.mask = mlp(), torch.ones(20)

    def forward(self, x):
        return self.body(x * self.mask.to(x.device))


def test_a_tensor_that_is_moved_by_hand_is_no_alarm():
    assert codes(judged(Classifier(Moving()), "cuda")) == []


@pytest.mark.parametrize(
    "term",
    [
        lambda self, x: (x + torch.arange(20)).mean() * 0,
        lambda self, x: (x * torch.rand(20).sqrt()).mean() * 0,
        lambda self, x: (torch.zeros(20).unsqueeze(0) + x).mean() * 0,
        lambda self, x: F.mse_loss(x, torch.zeros(len(x), 20)) * 0,
    ],
    ids=["arange", "derived", "view", "loss"],
)
def test_a_tensor_made_without_a_device_is_noticed(term):
    dog = judged(stepping(term), "mps")
    alert = line(dog, "WD403")
    assert alert.severity is Severity.WARNING
    assert "test_operators.py:" in alert.where


@pytest.mark.parametrize(
    "term",
    [
        lambda self, x: (x + torch.arange(20, device=x.device)).mean() * 0,
        lambda self, x: (x + torch.arange(20).to(x)).mean() * 0,
        lambda self, x: (x + torch.arange(20).to(self.device)).mean() * 0,
        lambda self, x: x[torch.arange(4)].mean() * 0,
        lambda self, x: x.mean() * torch.tensor(0.0),
        lambda self, x: (x + x.new_zeros(20)).mean() * 0,
        lambda self, x: (x + torch.zeros_like(x)).mean() * 0,
        lambda self, x: (torch.arange(4) + torch.ones(4)).mean() * 0,
        lambda self, x: x[:, torch.randperm(20)].mean() * 0,
    ],
    ids=["device", "to-tensor", "to-device", "index", "number", "new", "like", "apart", "permutation"],
)
def test_what_may_stay_on_the_cpu_is_quiet(term):
    assert codes(judged(stepping(term), "mps")) == []


# -- float64


@pytest.mark.parametrize("target", ["mps", "cuda"])
def test_a_float64_target_that_the_step_converts_still_has_to_be_moved(target):
    x, _ = blobs(64)
    module = Classifier(mlp(k=20), loss=lambda p, t: F.mse_loss(p, t.float()))
    dog = judged(module, target, data=loader(x, x.double()))
    assert codes(dog) == (["WD405"] if target == "mps" else [])
    if dog.alerts:
        assert dog.alerts[0].subjects == ("batch[1]",)


def test_float64_made_in_the_step():
    dog = judged(stepping(lambda self, x: x.double().mean().float() * 0), "mps")
    assert codes(dog) == ["WD405"]
    assert line(dog, "WD405").severity is Severity.WARNING


@pytest.mark.parametrize(("options", "told"), [({"dtype": torch.float32}, []), ({}, ["WD405"])])
def test_an_array_that_takes_another_format_on_its_way(options, told):
    array = torch.linspace(0, 1, 5, dtype=torch.float64).numpy()
    dog = judged(stepping(lambda self, x: (0 * torch.tensor(array, device=x.device, **options)).mean().float()), "mps")
    assert codes(dog) == told


def test_float64_parameters_and_buffers():
    net = nn.Sequential(mlp(), nn.Identity())
    net.register_buffer("table", torch.zeros(3, dtype=torch.float64))
    dog = judged(Classifier(net), "mps")
    assert line(dog, "WD405").subjects == ("net.table",)


def test_64_true_on_mps_fails_in_the_table():
    x, y = blobs(64)
    dog = judged(Classifier(), "mps", data=loader(x.double(), y), precision="64-true")
    assert "WD408" in codes(dog)


# -- shapes and host reads


def rows(lengths):
    return [(torch.randn(n, 20), n % 10) for n in lengths]


def longest(items):
    width = max(len(x) for x, _ in items)
    return torch.stack([F.pad(x, (0, 0, 0, width - len(x))) for x, _ in items]), torch.tensor([y for _, y in items])


class Pooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()

    def forward(self, x):
        return self.body(x.mean(1))


@pytest.mark.parametrize(
    ("lengths", "target", "expected"),
    [
        ([5 + 7 * i % 40 for i in range(64)], "tpu", ["WD409"]),
        ([5 + 7 * i % 40 for i in range(64)], "mps", []),
        ([8 * (1 + i // 2 % 3) for i in range(64)], "tpu", []),
        ([16] * 64, "xla", []),
    ],
    ids=["ragged", "eager", "buckets", "constant"],
)
def test_changing_shapes(lengths, target, expected):
    data = DataLoader(rows(lengths), 2, collate_fn=longest, drop_last=True)
    assert codes(judged(Classifier(Pooling()), target, data=data, max_steps=32)) == expected


def test_a_smaller_last_batch_is_known_before_training():
    dog = judged(Classifier(), "tpu", data=loader(*blobs(70)), max_steps=1)
    assert [a.code for a in dog.alerts if "last batch" in a.message] == ["WD409"]
    assert codes(dog) == []


def test_a_boolean_index_depends_on_values():
    dog = judged(stepping(lambda self, x: x[x > 0].mean() * 0), "tpu")
    assert codes(dog) == ["WD409"]
    assert "index" in line(dog, "WD409").message


def test_host_reads_are_notes_for_targets_that_run_ahead():
    module = stepping(lambda self, x: float(x.abs().max()) * 0)
    dog = judged(module, "cuda")
    assert codes(dog) == []
    alert = line(dog, "WD411")
    assert alert.severity is Severity.INFO
    assert "test_operators.py:" in alert.where


# -- what runs on the CPU on purpose


class OnTheCpu(nn.Module):
    def __init__(self, move):
        super().__init__()
        self.body, self.move = mlp(), move

    def forward(self, x):
        h = self.body(x)
        square = h[:10].T @ h[:10]
        values = torch.linalg.eigvals(self.move(square.detach())).abs().to(x.device)
        return h + values.sum() * 1e-3


@pytest.mark.parametrize(
    ("move", "expected"),
    [(lambda t: t, ["WD406"]), (lambda t: t.cpu(), []), (lambda t: t.to("cpu"), [])],
    ids=["here", "cpu", "to-cpu"],
)
def test_computing_that_part_on_the_cpu_is_a_way_out(move, expected):
    assert codes(judged(Classifier(OnTheCpu(move)), "mps")) == expected


def test_float64_kept_on_the_cpu_on_purpose_is_quiet():
    def term(self, x):
        grid = torch.linspace(0, 1, 20, dtype=torch.float64, device="cpu").cumsum(0)
        return (x * grid.float().to(x)).mean() * 0

    assert codes(judged(stepping(term), "mps")) == []


class Averaging(Classifier):
    """Keeps an average of its weights, made when they are on their device."""

    def on_train_start(self):
        self.average = {n: p.detach().clone() for n, p in self.named_parameters()}

    def training_step(self, batch, batch_idx):
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                self.average[name].lerp_(parameter, 0.1)
        return super().training_step(batch, batch_idx)


def test_tensors_made_of_the_weights_when_training_starts_are_no_strangers():
    assert codes(judged(Averaging(), "cuda")) == []
