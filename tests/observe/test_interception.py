"""Beside compiled code, under other modes, where a loss raises: nothing is disturbed, nothing is compiled twice."""

import gc
import sys
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from sanity_watchdog import LossWatch, SanityWatchdog
from sanity_watchdog.observe import intercept
from tests.runs import Classifier, blobs, codes, loader, mlp, trainer, watched


def fit(module: Any, dog: Any = None, **kwargs: Any) -> dict[str, Tensor]:
    torch.manual_seed(1)
    data = loader(*blobs(), shuffle=False)
    trainer(*([dog] if dog else []), max_steps=6, **kwargs).fit(module, data)
    return {k.replace("_orig_mod.", ""): v.clone() for k, v in module.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def compiled_network() -> Classifier:
    return Classifier(torch.compile(mlp(), backend="aot_eager"))


def compiled_loss() -> Classifier:
    return Classifier(loss=torch.compile(lambda z, y: F.cross_entropy(z, y), backend="aot_eager"))


def compiled_double_softmax() -> Classifier:
    return Classifier(torch.compile(nn.Sequential(mlp(), nn.Softmax(1)), backend="aot_eager"))


@pytest.fixture
def _fresh_dynamo() -> Any:
    import torch._dynamo

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("make", [compiled_network, compiled_loss, compiled_double_softmax])
def test_no_graph_is_compiled_twice(make: Any) -> None:
    from torch._dynamo.utils import counters

    def run(dog: Any) -> tuple[dict[str, Tensor], int, int]:
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        state = fit(make(), dog)
        return state, counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())

    dog = LossWatch(fail_on=None, select=("WD10",))
    plain, watched_run = run(None), run(dog)
    assert plain[1] == 1
    assert watched_run[1:] == plain[1:]
    assert same(watched_run[0], plain[0])
    assert not dog.summary.broken
    if make is compiled_double_softmax:
        assert codes(dog) == ["WD102"]
    if make is compiled_loss:
        assert "compiled" in dog.summary.skipped["WD101"]


def compiled_in_place() -> Any:
    net = mlp()
    net.compile(backend="eager")
    return net


@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize(
    "compiled",
    [
        lambda: torch.compile(mlp(), backend="eager"),
        lambda: torch.compile(lambda x: F.relu(x), backend="eager"),
        compiled_in_place,
    ],
    ids=["module", "function", "in-place"],
)
def test_compiled_code_counts_while_it_lives(compiled: Any) -> None:
    gc.collect()
    network = Classifier()
    held = compiled()
    held(torch.randn(2, 20))
    assert intercept.anything_compiled(network)
    del held
    gc.collect()
    assert sys.modules["torch._dynamo.eval_frame"].cached_backends  # type: ignore[attr-defined]
    assert not intercept.anything_compiled(network)
    held = compiled()
    assert intercept.anything_compiled(network)
    del held


@pytest.mark.usefixtures("_fresh_dynamo")
def test_a_run_after_a_compiled_one_is_followed() -> None:
    judged = []
    for make in (compiled_loss, Classifier):
        dog = SanityWatchdog(fail_on=None)
        fit(make(), dog)
        judged.append("WD133" in dog.summary.judged)
        del dog
        gc.collect()
    assert judged == [False, True]


class Checkpointed(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return self.loss(checkpoint(self.net, x, use_reentrant=False), y)


class Hooked(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        hidden = self.net[0](batch[0])
        hidden.register_hook(lambda g: g * 0.5)
        return self.loss(self.net[1:](hidden), batch[1])


class Noisy(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(self.net(batch[0] + torch.randn_like(batch[0])), batch[1])


@pytest.mark.parametrize("kind", [Classifier, Checkpointed, Hooked, Noisy])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_run_stays_the_same(kind: type[Classifier], precision: str) -> None:
    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(20, 32), nn.Dropout(0.2), nn.Linear(32, 10))

    runs = []
    dogs = [None, LossWatch(fail_on=None, select=("WD10",))]
    for dog in dogs:
        torch.manual_seed(0)
        runs.append(fit(kind(net()), dog, precision=precision))
    assert same(*runs)
    assert dogs[1] is not None
    assert len(dogs[1].summary.judged) >= 5


def test_modes_of_the_user_still_see_everything() -> None:
    class Names(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    class Under(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            with Below(), Names() as self.inner:
                return super().training_step(batch, batch_idx)

    module = Under(nn.Sequential(mlp(), nn.Softmax(1)))
    with Names() as outer:
        dog = watched(module, watchdog=LossWatch(fail_on=None, select=("WD10",)), max_steps=1)
    assert "cross_entropy" in outer.names
    assert "cross_entropy" in module.inner.names
    assert codes(dog) == ["WD102"]


def test_a_loss_that_raises_leaves_nothing_behind() -> None:
    real = {key: getattr(*key) for key in intercept.ENTRY_POINTS}
    depth = torch._C._len_torch_function_stack()
    with pytest.raises(IndexError):
        fit(Classifier(mlp(k=4)), LossWatch(fail_on=None, select=("WD10",)))
    assert torch._C._len_torch_function_stack() == depth
    assert all(getattr(*key) is function for key, function in real.items())


@pytest.mark.parametrize(
    ("error", "text"), [(ValueError("shapes"), "ValueError: shapes"), (torch.OutOfMemoryError("no memory"), "")]
)
def test_only_errors_about_arguments_are_the_calls(error: Exception, text: str) -> None:
    from sanity_watchdog.observe.calls import Trace
    from sanity_watchdog.observe.lineage import Lineage

    class Raising(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise error

    trace = Trace()
    mode = intercept.FollowingMode(intercept.Interception(trace, lambda call: None, 0), Lineage(trace, (), True))
    with mode, pytest.raises(type(error)):
        F.mse_loss(torch.zeros(3).as_subclass(Raising), torch.zeros(3))
    assert [call.error for call in trace.calls] == [text]


def test_entry_points_are_those_of_this_torch() -> None:
    """Each loss that has an entry point is recorded with the same numbers as under the mode."""
    from sanity_watchdog.observe.calls import LossCall, Trace
    from sanity_watchdog.observe.lineage import Lineage

    z, y, t = torch.randn(8, 5), torch.randint(0, 5, (8,)), torch.rand(8, 5).softmax(1)

    def losses() -> None:
        F.cross_entropy(z, y, reduction="sum", label_smoothing=0.1, ignore_index=2)
        F.nll_loss(z, y, reduction="none")
        F.mse_loss(z, t)
        F.l1_loss(z, t, reduction="sum")
        F.smooth_l1_loss(z, t)
        F.huber_loss(z, t)
        F.binary_cross_entropy(t, t)
        F.binary_cross_entropy_with_logits(z, t, pos_weight=torch.ones(5))
        F.kl_div(z, t, reduction="batchmean", log_target=False)
        F.triplet_margin_loss(z, t, t.roll(1, 0), reduction="sum")
        F.ctc_loss(z.log_softmax(-1), y[:3], torch.tensor(8), torch.tensor(3), blank=4, zero_infinity=True)

    def record(enter: Any) -> list[LossCall]:
        trace = Trace()
        seen = intercept.Interception(trace, lambda call: None, 0)
        with enter(seen, trace):
            losses()
        assert seen.fault is None
        return trace.calls

    cheap = record(lambda seen, trace: intercept.entry_points(seen))
    full = record(lambda seen, trace: intercept.FollowingMode(seen, Lineage(trace, (), True)))
    assert len(intercept.ENTRY_POINTS) == len(full)
    for a, b in zip(cheap, full, strict=True):
        assert (a.name, a.where) == (b.name, b.where)
        assert a.input is b.input or torch.equal(a.input, b.input)
        for name in ("ignore_index", "label_smoothing", "pos_weight", "log_target"):
            if b.arguments.get(name) is not None:
                assert torch.equal(torch.as_tensor(a.arguments[name]), torch.as_tensor(b.arguments[name]))
        if b.name != "kl_div":
            assert a.arguments["reduction"] == b.arguments.get("reduction", "mean")


def test_later_steps_have_no_mode() -> None:
    depths: list[int] = []

    class Deep(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            depths.append(torch._C._len_torch_function_stack())
            return super().training_step(batch, batch_idx)

    watched(Deep(), watchdog=LossWatch(fail_on=None, select=("WD10",)), max_steps=6)
    assert depths[0] == 1
    assert not any(depths[1:])


@pytest.mark.parametrize("make", [lambda: F.mse_loss, nn.MSELoss, lambda: lambda z, y: F.smooth_l1_loss(z, y)])
def test_a_warning_of_torch_names_the_line_that_it_names_without_us(make: Any) -> None:
    def places(*callbacks: Any) -> list[tuple[str, int]]:
        torch.manual_seed(0)
        module = Classifier(nn.Linear(20, 1), make())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            trainer(*callbacks).fit(module, loader(torch.randn(64, 20), torch.randn(64)))
        return [(w.filename, w.lineno) for w in told if "target size" in str(w.message)]

    plain, dog = places(), SanityWatchdog(fail_on=None)
    assert plain
    assert places(dog) == plain
    assert "WD104" in [a.code for a in dog.alerts]
