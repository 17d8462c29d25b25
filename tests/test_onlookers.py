"""What torch or the user does otherwise when somebody looks on: the run is the same run, and as often called."""

import copy
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import lightning as L
import pytest
import torch
import torch.fx
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog import SanityWatchdog

from .outcomes import assert_same, outcome
from .runs import Classifier, assert_awake, blobs, codes, loader, trainer, watched
from .test_unusual import assert_unharmed


class Encoder(nn.Module):
    """Features as a sequence; in eval mode torch has a fused path for it, which it leaves where somebody looks on.

    Where it is padded, that path goes through nested tensors.
    """

    def __init__(self, padded: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=padded)
        self.enter, self.leave, self.padded = nn.Linear(1, 16), nn.Linear(16, 10), padded

    def forward(self, x: Tensor) -> Tensor:
        lengths = 12 + torch.arange(len(x)) % 5
        padding = torch.arange(x.shape[1]) >= lengths[:, None] if self.padded else None
        return self.leave(self.body(self.enter(x[..., None]), src_key_padding_mask=padding).mean(1))


class Distilled(Classifier):
    """A teacher in eval mode: registered, and put to it within the step, or kept out of the module."""

    def __init__(self, registered: bool, padded: bool) -> None:
        super().__init__(Encoder(padded), lr=1e-2)
        teacher = copy.deepcopy(self.net).requires_grad_(False)
        self.teacher = teacher if registered else None
        self.kept = [teacher.eval()] if not registered else [teacher]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        with torch.no_grad():
            target = self.kept[0].eval()(x)
        scores = self.net(x)
        return F.cross_entropy(scores, y) + F.mse_loss(scores, target)


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("padded", [False, True])
def test_a_teacher_in_eval_mode_takes_the_same_path(registered: bool, padded: bool) -> None:
    assert_unharmed(lambda: Distilled(registered, padded))


class Probe(Classifier):
    """On a frozen encoder that stays in eval mode; its log-likelihood lacks its minus."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(10, 10))
        self.encoder = Encoder().requires_grad_(False)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.encoder.eval()
        return self

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        scores = self.net(self.encoder(batch[0]))
        return scores.log_softmax(1).gather(1, batch[1][:, None]).mean()


def test_a_fault_behind_an_encoder_in_eval_mode_is_seen() -> None:
    assert codes(watched(Probe(), max_steps=4))[:1] == ["WD108"]


@pytest.fixture
def wrap() -> Iterator[Callable[[str, Callable[[Any], Any]], list[int]]]:
    """Puts a wrapper around a function of ``torch.nn.functional`` and counts its calls."""
    with pytest.MonkeyPatch.context() as patch:

        def around(name: str, change: Callable[[Any], Any]) -> list[int]:
            real, calls = getattr(F, name), [0]

            @wraps(real)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                calls[0] += 1
                return change(real(*args, **kwargs))

            patch.setattr(F, name, wrapper)
            return calls

        yield around


@pytest.mark.parametrize("name", ["cross_entropy", "relu", "dropout", "batch_norm", "layer_norm", "linear"])
def test_a_wrapped_function_runs_as_often(name: str, wrap: Any) -> None:
    calls = wrap(name, lambda out: out * 1.1)
    counts = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(20, 32), nn.BatchNorm1d(32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            hidden = F.dropout(F.relu(self.norm(self.first(x))), 0.1, self.training)
            return self.last(F.layer_norm(hidden, (32,)))

    class Counted(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            before = calls[0]
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            counts.append(calls[0] - before)
            return loss

    assert_unharmed(lambda: Counted(Net()))
    assert len(set(counts)) == 1


class Noisy(Tensor):
    """Draws a random number whenever it is used."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        torch.rand(1)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_kind_of_tensor_that_notices_its_use() -> None:
    class Used(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return F.cross_entropy(self.net(batch[0].as_subclass(Noisy)), batch[1])

    assert_unharmed(Used)


def test_a_wrapped_loss_is_known_all_the_same(wrap: Any) -> None:
    wrap("cross_entropy", lambda out: out)

    class Twice(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return F.cross_entropy(self.net(batch[0]).softmax(1), batch[1])

    assert "WD102" in codes(watched(Twice(), loader(*blobs()), max_steps=4))


def warned(module: Callable[[], L.LightningModule], *dogs: SanityWatchdog) -> list[tuple[str, str, int]]:
    """Warnings of a seeded fit, each once per line: what they say and where they point to."""
    L.seed_everything(2, verbose=False)
    net, data, fit = module(), loader(*blobs()), trainer(*dogs, max_steps=12, max_epochs=2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        fit.fit(net, data)
    return [(str(w.message), w.filename, w.lineno) for w in found]


class Warned(Classifier):
    """Functions of torch's that warn: written in Python, with lines further out, and written in C."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        scores = self.net(batch[0])
        few = scores[:1, 0].std()
        F.dropout2d(batch[0], 0.0)
        F.mse_loss(scores[:, :1], batch[1].float())
        return F.nll_loss(F.log_softmax(scores), batch[1]) + 0 * few.detach().nan_to_num()


@pytest.mark.parametrize("targets", [(), ("mps", "tpu")])
def test_warnings_name_the_same_lines(targets: tuple[str, ...]) -> None:
    dog = SanityWatchdog(fail_on=None, every_n_steps=1, targets=targets)
    plain = warned(Warned)
    assert warned(Warned, dog) == plain
    assert sum("dropout2d" in text or "Implicit dimension" in text or "std()" in text for text, *_ in plain) >= 3
    assert_awake(dog)


class Reused(Classifier):
    """Tensors that are exchanged within the step, which weak references forbid."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Linear(20, 10)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        before = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            self.more.double().float()
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)
        other = x * 2
        torch.utils.swap_tensors(x, other)
        return F.cross_entropy(self.net(x) + self.more(other), y)


class Mapped(Classifier):
    """A custom function of the user's that vmap and jvp may transform, a kind of call that torch passes to modes."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        hidden = torch.func.vmap(Exponential.apply)(self.net[0](x) * 0.1)
        return F.cross_entropy(self.net[2](Exponential.apply(hidden * 0.1)), y)


class Exponential(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.saved_tensors[0]


class Traced(Classifier):
    """Traces its network, and a loss, within the step."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        symbolic = torch.fx.symbolic_trace(Loss())
        with warnings.catch_warnings():
            warnings.simplefilter("error", torch.jit.TracerWarning)
            traced = torch.jit.trace(self.net, x)
        return F.cross_entropy(traced(x), y) + 0 * symbolic(self.net(x).detach())


class Loss(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        return F.cross_entropy(scores.softmax(1) * 2, scores[:, 0].long().clamp(0, 9))


class Recompiled(Classifier):
    """Compiles its network within the first step."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.made = getattr(self, "made", None) or [torch.compile(self.net, backend="eager")]
        return F.cross_entropy(self.made[0](batch[0]), batch[1])


@pytest.mark.parametrize("kind", [Reused, Mapped, Traced])
def test_what_torch_does_with_functions_and_tensors_within_a_step(kind: type[Classifier]) -> None:
    assert_unharmed(kind)


def test_a_network_that_is_compiled_within_the_first_step() -> None:
    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    assert_same(outcome(module=Recompiled, max_steps=8), outcome(dog, module=Recompiled, max_steps=8))
    assert_awake(dog)


def test_batches_at_rest_live_as_long_as_without_us() -> None:
    def lives(*dogs: SanityWatchdog) -> list[int]:
        alive: list[weakref.ref[Tensor]] = []
        counts: list[int] = []

        class Counting(Classifier):
            def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
                counts.append(sum(ref() is not None for ref in alive[:-1]))
                alive.append(weakref.ref(batch[0]))

        trainer(*dogs, max_steps=90, max_epochs=20).fit(Counting(), loader(*blobs()))
        return counts

    assert lives(SanityWatchdog(fail_on=None)) == lives()


class Mapping(Classifier):
    """A teacher whose attention has been wrapped where it is kept, to have its maps."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 10)))
        attention = nn.MultiheadAttention(16, 2, batch_first=True).requires_grad_(False).eval()
        forward, self.maps = attention.forward, 0

        def kept(*args: Any, **kwargs: Any) -> Any:
            self.maps += 1
            return forward(*args, **kwargs, need_weights=False)

        attention.forward = kept  # type: ignore[method-assign]
        self.kept = [attention]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        hidden = self.net[:2](batch[0])
        sequence = hidden.detach().view(4, 8, 16)
        with torch.no_grad():
            aim = self.kept[0](sequence, sequence, sequence)[0].reshape(32, 16)
        return F.cross_entropy(self.net[2](hidden), batch[1]) + F.mse_loss(hidden, aim)


def test_wrapped_attention_of_a_teacher_takes_the_same_path() -> None:
    assert_unharmed(Mapping)
