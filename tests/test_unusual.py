"""Unusual modules, data and parameters: the run is the same run, the watchdog stays awake and raises no false alarm."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from sanity_watchdog import SanityCheckFailed, SanityWatchdog
from sanity_watchdog.alerts import Severity

from .runs import Classifier, Manual, assert_awake, blobs, loader, mlp, trainer

JUDGED = 8
STEPS = 12


def without_rates(net: L.LightningModule) -> None:
    """A fault that can be planted in any setting: every learning rate is zero."""
    configured = net.configure_optimizers

    def configure_optimizers() -> Any:
        found = configured()
        for optimizer in found if isinstance(found, list) else [found]:
            for group in optimizer.param_groups:
                group["lr"] = 0.0
        return found

    net.configure_optimizers = configure_optimizers  # type: ignore[method-assign]


def made(
    module: Callable[[], L.LightningModule],
    data: Callable[[], Any],
    *dogs: SanityWatchdog,
    plant: Callable[[L.LightningModule], None] = lambda net: None,
    **more: Any,
) -> Any:
    """A seeded fit: its parameters by name, its generator, and how many batches it saw."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    L.seed_everything(2, verbose=False)
    net, given = module(), data()
    plant(net)
    fit = trainer(*dogs, **{"max_steps": STEPS, "max_epochs": 8, **more})
    kind = "datamodule" if isinstance(given, L.LightningDataModule) else "train_dataloaders"
    fit.fit(net, **({} if given is None else {kind: given}))
    state = {name: p.detach().clone() for name, p in net.named_parameters()}
    return state, torch.get_rng_state(), fit.global_step, dict(torch._dynamo.utils.counters["stats"])


def values(tensor: Tensor) -> Tensor:
    tensor = getattr(tensor, "_local_tensor", tensor)
    return tensor.to_dense() if tensor.layout is not torch.strided else tensor


def assert_unharmed(
    module: Callable[[], L.LightningModule], data: Callable[[], Any] = lambda: loader(*blobs()), **more: Any
) -> SanityWatchdog:
    """Watched and unwatched runs are equal, nothing of ours broke, nothing was alarmed about, and a fault would be."""
    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    plain, watched = made(module, data, **more), made(module, data, dog, **more)
    assert plain[0].keys() == watched[0].keys()
    for name, tensor in plain[0].items():
        assert torch.equal(values(tensor), values(watched[0][name])), name
    assert torch.equal(plain[1], watched[1])
    assert plain[2:] == watched[2:]
    assert_awake(dog, JUDGED)
    assert not [str(a) for a in dog.alerts if a.severity >= Severity.WARNING]
    awake = SanityWatchdog(fail_on=None, every_n_steps=1)
    made(module, data, awake, plant=without_rates, **more)
    assert "WD501" in {a.code for a in awake.alerts}
    return dog


# -- modules


class Late(Classifier):
    """Layers that come with ``configure_model``."""

    def __init__(self) -> None:
        super().__init__(nn.Identity())
        self.made = False

    def configure_model(self) -> None:
        if not self.made:
            self.made, self.net = True, mlp()


def test_configure_model() -> None:
    assert_unharmed(Late)


def lazy(*last: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.LazyLinear(32), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(10), *last)


def convolutional() -> Classifier:
    last = nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.LazyLinear(10)
    return Classifier(nn.Sequential(nn.Unflatten(1, (4, 5)), nn.LazyConv1d(8, 3), nn.LazyBatchNorm1d(), *last))


@pytest.mark.parametrize(
    ("module", "more"),
    [
        (lambda: Classifier(lazy()), {}),
        (lambda: Manual(lazy()), {}),
        (lambda: Classifier(lazy()), {"accumulate_grad_batches": 3}),
        (convolutional, {}),
    ],
    ids=["linear", "manual", "accumulating", "convolutional"],
)
def test_lazy_modules(module: Callable[[], L.LightningModule], more: dict[str, Any]) -> None:
    assert "WD101" in assert_unharmed(module, **more).summary.judged


def test_the_first_loss_of_lazy_modules_is_judged_before_an_update() -> None:
    losses = []

    class Noted(Classifier):
        def on_before_backward(self, loss: Tensor) -> None:
            losses.append(float(loss))

    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    trainer(dog, max_steps=4).fit(Noted(lazy()), loader(*blobs()))
    assert f"first loss {losses[0]:.3f}" in dog.summary.vitals["loss"]
    fit = trainer(dog, max_steps=4)
    with pytest.raises(SanityCheckFailed, match="WD101 initial-loss-off"):
        fit.fit(Classifier(lazy(Loud())), loader(*blobs()))
    assert fit.global_step == 0


def test_a_single_step_of_lazy_modules_is_judged() -> None:
    dog = SanityWatchdog(fail_on=None)
    trainer(dog, max_steps=1).fit(Classifier(lazy()), loader(*blobs()))
    assert dog.verdict == "pass"
    assert "WD101" in dog.summary.judged


class Loud(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 40 * x


class Backbone(Classifier):
    """A compiled backbone with an eager loss."""

    def __init__(self) -> None:
        super().__init__(nn.Identity())
        self.body = torch.compile(mlp(), backend="eager")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self.body(x), y)


def test_a_compiled_backbone_costs_no_graph_more() -> None:
    dog = SanityWatchdog(fail_on=None)
    stats = [made(Backbone, lambda: loader(*blobs()), *dogs)[3] for dogs in ([], [dog])]
    assert stats[0]["unique_graphs"] == stats[1]["unique_graphs"] == 1
    assert_unharmed(Backbone)


class CompiledStep(Classifier):
    """The optimizer's step is compiled, and with it the closure that it calls."""

    def configure_optimizers(self) -> Any:
        optimizer: Any = super().configure_optimizers()
        optimizer.step = torch.compile(optimizer.step, backend="eager")
        return optimizer


class CompiledStepByHand(CompiledStep, Manual):
    pass


class CompiledUpdate(Classifier):
    """The closure is called, and then what the optimizer does is compiled."""

    update: Any = None

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        optimizer_closure()
        if self.update is None:
            self.update = torch.compile(optimizer.optimizer.step, backend="eager")
        self.update()


@pytest.mark.parametrize("module", [CompiledStep, CompiledStepByHand])
def test_compiled_steps(module: Callable[[], L.LightningModule]) -> None:
    assert_unharmed(module)


@pytest.mark.parametrize("module", [CompiledStep, CompiledStepByHand, CompiledUpdate])
def test_compiled_steps_of_a_longer_run(module: Callable[[], L.LightningModule]) -> None:
    dog = SanityWatchdog(fail_on=None)
    plain, watched = (made(module, lambda: loader(*blobs()), *dogs, max_steps=70) for dogs in ([], [dog]))
    assert all(torch.equal(t, watched[0][name]) for name, t in plain[0].items())
    assert plain[3] == watched[3]
    assert_awake(dog, JUDGED)
    assert not [str(a) for a in dog.alerts if a.severity >= Severity.WARNING]


def test_steps_that_take_the_iterator() -> None:
    class Iterating(Classifier):
        def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
            batch, _, _ = next(dataloader_iter)
            return super().training_step(batch, 0)

    assert_unharmed(Iterating)


# -- data


class Data(L.LightningDataModule):
    def prepare_data(self) -> None: ...

    def setup(self, stage: str) -> None:
        self.tensors = blobs()

    def train_dataloader(self) -> Any:
        return loader(*self.tensors)

    def val_dataloader(self) -> Any:
        return [loader(*self.tensors, shuffle=False), loader(*self.tensors, shuffle=False)]


def test_a_datamodule_with_two_validation_loaders() -> None:
    class Validating(Classifier):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            super().validation_step(batch, batch_idx)

    assert_unharmed(Validating, Data, num_sanity_val_steps=2)


@pytest.mark.parametrize("mode", ["min_size", "max_size", "max_size_cycle"])
def test_combined_loaders(mode: str) -> None:
    class Several(Classifier):
        def training_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            parts = [p for p in batch.values() if p is not None] if isinstance(batch, dict) else [batch]
            return sum(super(Several, self).training_step(p, batch_idx) for p in parts) / len(parts)

    def data() -> CombinedLoader:
        x, y = blobs()
        return CombinedLoader({"a": loader(x, y), "b": loader(x[:128], y[:128], batch_size=16)}, mode)

    assert_unharmed(Several, data)


def test_a_dict_of_loaders() -> None:
    class Two(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch["a"], batch_idx) + super().training_step(batch["b"], batch_idx)

    assert_unharmed(Two, lambda: {"a": loader(*(both := blobs())), "b": loader(*both)})


class Graph:
    """A batch type of the user's own, with things in it that are no tensors."""

    def __init__(self, samples: list[tuple[Tensor, Tensor]]) -> None:
        self.x, self.y = (torch.stack(part) for part in zip(*samples, strict=True))
        self.names = [f"sample {i}" for i in range(len(self.y))]
        self.me = self  # a cycle

    def to(self, *args: Any, **kwargs: Any) -> "Graph":
        self.x, self.y = self.x.to(*args, **kwargs), self.y.to(*args, **kwargs)
        return self


def test_a_batch_type_of_the_users_own() -> None:
    class Owner(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step((batch.x, batch.y), batch_idx)

    assert_unharmed(Owner, lambda: loader(*blobs(), collate_fn=Graph))


class Text(Dataset[tuple[str, int]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> tuple[str, int]:
        return "ab"[i % 2] * (1 + i % 7), i % 2


def test_batches_without_any_tensor() -> None:
    class Reading(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(2, 2))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            words, labels = batch
            x = torch.tensor([[word.count("a"), word.count("b")] for word in words], dtype=torch.float32)
            return F.cross_entropy(self.net(x / 7), torch.tensor(labels))

    def data() -> DataLoader[Any]:
        return DataLoader(
            Text(), 8, shuffle=True, collate_fn=lambda samples: tuple(map(list, zip(*samples, strict=True)))
        )

    assert_unharmed(Reading, data)


def test_zero_length_epochs() -> None:
    def data() -> Any:
        x, y = blobs(64)

        class Sometimes:
            """Batches of indices; none in the second epoch."""

            epoch = -1

            def __iter__(self) -> Iterator[list[int]]:
                self.epoch += 1
                return iter([] if self.epoch == 1 else torch.randperm(64).view(2, 32).tolist())

        return DataLoader(torch.utils.data.TensorDataset(x, y), batch_sampler=Sometimes())  # type: ignore[arg-type]

    assert_unharmed(Classifier, data)


# -- parameters


def test_thousands_of_parameters() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(2) + 0.01 * torch.randn(2)) for _ in range(10_000)])
            self.head = nn.Linear(20, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x) * torch.stack(list(self.scales)).mean()

    assert_unharmed(lambda: Classifier(Many()), max_steps=2)


def test_sparse_gradients() -> None:
    class Words(Classifier):
        def __init__(self) -> None:
            super().__init__(
                nn.Sequential(nn.EmbeddingBag(50, 16, sparse=True), nn.Linear(16, 4)), optimizer=torch.optim.SGD, lr=0.5
            )

    def data() -> Any:
        y = torch.randint(0, 4, (256,))
        return loader((torch.randint(0, 12, (256, 6)) + 12 * y[:, None]), y)

    assert_unharmed(Words, data)


def test_sparse_parameters() -> None:
    class Edges(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            places = torch.stack([torch.arange(20), torch.randperm(20)])
            self.mixing = nn.Parameter(torch.sparse_coo_tensor(places, 1 + 0.1 * torch.randn(20), (20, 20)).coalesce())
            self.net = mlp()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(torch.sparse.mm(self.mixing, x.T).T)

    assert_unharmed(lambda: Classifier(Edges(), optimizer=torch.optim.SGD, lr=0.1))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_batches(layout: torch.layout) -> None:
    class Sequences(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 16), nn.Linear(16, 3)

        def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
            each = [one.mean(0) for one in self.body(batch[0]).relu().unbind()]
            return F.cross_entropy(self.head(torch.stack(each)), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 1e-2)

    def data() -> Any:
        y = torch.randint(0, 3, (256,))
        x = [torch.randn(2 + i % 5, 4) + y[i] for i in range(256)]

        def together(pairs: Any) -> tuple[Tensor, Tensor]:
            return torch.nested.nested_tensor([x for x, _ in pairs], layout=layout), torch.stack([y for _, y in pairs])

        return DataLoader(list(zip(x, y, strict=True)), 32, shuffle=True, collate_fn=together)

    assert_unharmed(Sequences, data)


def test_complex_parameters() -> None:
    class Waves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(20, 32, dtype=torch.complex64) / 5)
            self.head = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head((x.to(torch.complex64) @ self.weight).abs())

    assert_unharmed(lambda: Classifier(Waves()))


def test_empty_and_scalar_parameters() -> None:
    class Hollow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.none = nn.Parameter(torch.zeros(0, 7))
            self.one = nn.Parameter(torch.ones(()))
            self.net = mlp()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) * self.one + self.none.sum()

    assert_unharmed(lambda: Classifier(Hollow()))


def test_a_group_of_no_features() -> None:
    class Hollow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.none = mlp(), nn.Linear(0, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) + self.none(x[:, :0])

    assert_unharmed(lambda: Classifier(Hollow()))


def test_parameters_that_are_changed_in_the_middle_of_a_run() -> None:
    class Growing(Classifier):
        def on_train_epoch_start(self) -> None:
            if self.current_epoch == 1:
                self.extra = nn.Linear(10, 10)
                with torch.no_grad():
                    self.extra.weight.copy_(torch.eye(10))
                    self.extra.bias.zero_()
                self.net.append(self.extra)
                self.trainer.optimizers[0].add_param_group({"params": list(self.extra.parameters())})

    assert_unharmed(Growing)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_sharded_parameters() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_module

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))

        class Sharded(Classifier):
            def __init__(self) -> None:
                super().__init__(distribute_module(mlp(), mesh), optimizer=torch.optim.SGD)

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                from torch.distributed.tensor import DTensor

                x, y = batch
                out = self.net(DTensor.from_local(x, mesh, [Replicate()]))
                return F.cross_entropy(out.to_local(), y)

        assert_unharmed(Sharded)
    finally:
        torch.distributed.destroy_process_group()


def test_parameters_by_hand_in_several_optimizers() -> None:
    class Two(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(F.cross_entropy(self.net(x), y))
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.net[0].parameters(), 0.05), torch.optim.Adam(self.net[2].parameters(), 1e-3)]

    assert_unharmed(Two)


# -- the command line

YAML = """
trainer:
  accelerator: cpu
  max_steps: 6
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
  callbacks:
    - class_path: sanity_watchdog.SanityWatchdog
      init_args:
        fail_on: null
        every_n_steps: 7
        ignore: [WD110]
        options:
          WD101: {tolerance: 0.4}
        targets: [mps]
"""


class Plain(Classifier):
    """Without arguments, as the command line likes it."""

    def __init__(self, width: int = 32) -> None:
        super().__init__(mlp(width=width))

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        super().validation_step(batch, batch_idx)


def test_lightning_cli_from_yaml(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(YAML)
    cli = LightningCLI(
        Plain, Data, args=["fit", "--config", str(tmp_path / "run.yaml"), f"--trainer.default_root_dir={tmp_path}"]
    )
    dog = next(c for c in cli.trainer.callbacks if isinstance(c, SanityWatchdog))  # type: ignore[attr-defined]
    assert dog.settings.every_n_steps == 7
    assert dog.settings.targets == ("mps",)
    assert dict(dog.settings.options["WD101"]) == {"tolerance": 0.4}
    assert list(dog.settings.ignore) == ["WD110"]
    assert dog.summary.batches == 6
    assert_awake(dog, JUDGED)


def test_an_unknown_option_in_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(YAML.replace("tolerance", "tolerence"))
    with pytest.raises((SystemExit, ValueError)):
        LightningCLI(Plain, Data, args=["fit", "--config", str(tmp_path / "run.yaml")])


def test_importing_the_package_costs_no_torch() -> None:
    code = "import sys, sanity_watchdog; print('torch' in sys.modules, 'lightning' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
