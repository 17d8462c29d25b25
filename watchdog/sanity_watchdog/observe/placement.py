"""Tensors that a model keeps without registering them: they do not follow it to another device."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from torch import Tensor, nn
from torch.distributions import Distribution

from .names import plain_name

FOLLOWED = frozenset({"_parameters", "_buffers", "_modules", "_hparams", "_hparams_initial", "example_input_array"})
"""Attributes that ``nn.Module`` and Lightning move themselves, or that never take part in a step."""
DEEP = 3
"""Levels of these that are looked into."""
MANY = 64
"""Items of one list or dictionary that are looked into."""


@dataclass(frozen=True)
class Loose:
    """One unregistered tensor: ``net.mask``, ``tables['a'][0]``."""

    name: str
    tensor: Tensor


def loose_tensors(model: nn.Module) -> Iterator[Loose]:
    """Tensors in attributes, lists, dictionaries, distributions and partial functions of ``model`` and its modules.

    Each once. Left out: what is registered under another name, unregistered *parameters* (they are their own fault),
    and modules that move their tensors themselves by an ``_apply`` of their own (as metrics do).
    """
    seen = {id(t) for t in (*model.parameters(), *model.buffers())}
    for path, module in model.named_modules():
        if type(module)._apply is not nn.Module._apply:
            continue
        for attribute, value in vars(module).items():
            if attribute in FOLLOWED:
                continue
            for name, tensor in _inside(value, attribute, 0):
                if id(tensor) not in seen and not isinstance(tensor, nn.Parameter):
                    seen.add(id(tensor))
                    yield Loose(plain_name(f"{path}.{name}" if path else name), tensor)


def _inside(value: Any, name: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif depth >= DEEP:
        return
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(islice(value, MANY)):
            yield from _inside(item, f"{name}[{i}]", depth + 1)
    elif isinstance(value, Mapping):
        for key, item in islice(value.items(), MANY):
            yield from _inside(item, f"{name}[{key!r}]", depth + 1)
    elif isinstance(value, Distribution):
        for key, item in vars(value).items():
            yield from _inside(item, f"{name}.{key}", depth + 1)
    elif isinstance(value, partial):
        yield from _inside(value.args, f"{name}.args", depth)
        yield from _inside(value.keywords, f"{name}.keywords", depth)
