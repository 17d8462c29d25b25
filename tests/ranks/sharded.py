"""Trainings whose parameters are sharded: FSDP's second version and tensor parallelism, as ModelParallelStrategy has
them."""

import json
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.nn import functional as F

from .cases import CASES, Case, Net, data


def network() -> nn.Sequential:
    """Rows that two and four ranks cannot share evenly, and layers of every kind."""
    return nn.Sequential(nn.Linear(20, 33), nn.LayerNorm(33), nn.GELU(), nn.Dropout(0.1), nn.Linear(33, 10))


class Sharded(Net):
    """Shards each layer and the rest, with one ``fault`` or none; writes the true norms of its gradients down."""

    def __init__(self, fault: str = "") -> None:
        super().__init__(network())
        self.fault = fault
        self.norms: list[float] = []

    def configure_model(self) -> None:
        from torch.distributed.fsdp import fully_shard

        mesh = self.device_mesh["data_parallel"]
        for layer in self.net:
            if list(layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(self.net, mesh=mesh)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        scores = self.net(batch[0])
        if self.fault == "softmax":
            scores = scores.softmax(-1)
        elif self.fault == "detached":
            scores = scores.detach().requires_grad_()
        loss = F.cross_entropy(scores, batch[1])
        self.losses.append(loss.item())
        return loss * float("nan") if self.fault == "nan" and self.on_one and self.global_step == 5 else loss

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step == 4 and self.fault in ("zeroed", "lost"):
            with torch.no_grad():
                self.net[4].weight.zero_() if self.fault == "zeroed" else self.net[0].weight.mul_(float("nan"))

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        whole = [whole_of(p.grad) for p in self.parameters() if p.grad is not None]
        self.norms.append(sum(g.double().square().sum().item() for g in whole) ** 0.5)

    def on_train_end(self) -> None:
        Path(f"norms{self.global_rank}.json").write_text(json.dumps(self.norms))

    def configure_optimizers(self) -> Any:
        parameters = list(self.parameters())
        if self.fault == "outside":
            parameters = list(self.net[4].parameters())
        elif self.fault == "foreign":
            parameters = [*parameters[2:], nn.Parameter(torch.zeros(3, 3))]
        return torch.optim.AdamW(parameters, 0.0 if self.fault == "rate" else 1e-3)


def whole_of(gradient: Any) -> Tensor:
    """All of a gradient, gathered from every rank."""
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


class Parallel(Sharded):
    """One layer's columns on each rank, the next one's rows; norm and head are whole on all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 10))

    def configure_model(self) -> None:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(self.net, self.device_mesh["tensor_parallel"], plan)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), 1e-3, foreach=False)


def _sharded(fault: str) -> Any:
    def build(world: int) -> Case:
        return (
            Sharded(fault),
            data(),
            {"strategy": ModelParallelStrategy(data_parallel_size=world, tensor_parallel_size=1)},
        )

    return build


def _parallel(world: int) -> Case:
    strategy = ModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=world)
    return Parallel(), data(), {"strategy": strategy}


CASES["tensor-parallel"] = _parallel
for name in ("", "softmax", "nan", "zeroed", "lost", "outside", "foreign", "rate", "detached"):
    CASES[f"sharded-{name}".strip("-")] = _sharded(name)
