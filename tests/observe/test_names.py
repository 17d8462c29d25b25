from typing import Any

import torch
from torch import nn

from sanity_watchdog.observe.formats import autocasts_to_half, has_dtype, live_scaler, native_bf16, scale_of
from sanity_watchdog.observe.names import named_trainable, parameter_names, parameter_owners, plain_name
from sanity_watchdog.observe.run import Run
from tests.runs import fp16


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        self.head.weight = self.table.weight
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)


def test_wrappers_are_stripped_wherever_they_stand() -> None:
    assert plain_name("_orig_mod.net._fsdp_wrapped_module.0._checkpoint_wrapped_module.weight") == "net.0.weight"
    compiled = torch.compile(nn.Linear(2, 2), backend="eager")
    assert set(parameter_names(compiled).values()) == {"weight", "bias"}
    torch._dynamo.reset()


def test_a_tied_weight_has_its_first_name_and_owner() -> None:
    net = Tied()
    assert parameter_names(net)[id(net.head.weight)] == "table.weight"
    assert parameter_owners(net) == {"table.weight": net.table, "scale": net}
    assert list(named_trainable(net)) == ["table.weight"]


class Hides(nn.Linear):
    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError("made elsewhere")


def test_a_part_that_does_not_name_its_parameters_owns_them() -> None:
    net = nn.Sequential(Hides(2, 2), nn.BatchNorm1d(2, affine=False))
    assert parameter_owners(net) == dict.fromkeys(parameter_names(net).values(), net[0])
    assert list(parameter_owners(net)) == ["0.weight", "0.bias"]


def test_formats_and_scalers() -> None:
    half = fp16(2.0**12)
    run = Run(module=Tied(), precision="16-mixed", plugin=half, scaler=half.scaler)
    assert autocasts_to_half(run)
    assert live_scaler(run)
    assert float(scale_of(run, torch.device("cpu"))) == 1.0  # made with the first loss
    half.scaler.scale(torch.ones(()))
    assert float(scale_of(run, torch.device("cpu"))) == 2.0**12
    off = fp16(enabled=False)
    assert not live_scaler(Run(module=Tied(), plugin=off, scaler=off.scaler))
    assert not autocasts_to_half(Run(module=Tied(), precision="32-true"))
    assert has_dtype(Tied().half(), torch.float16)
    assert not has_dtype(Tied(), torch.float16)


def test_a_device_without_native_bfloat16_is_not_offered_it() -> None:
    assert not native_bf16(torch.device("mps"))
    assert isinstance(native_bf16(torch.device("cpu")), bool)
