"""What a dataloader's own attributes tell. Nothing is iterated: that would move generators and load data."""

import dis
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

KNOWN = ("torch", "lightning", "pytorch_lightning")
DEPTH = 3
SETTING_UP = ("__init__", "__post_init__", "setup", "prepare_data")
LIGHTNINGS_OWN = "pl_worker_init_function"


@dataclass(frozen=True)
class Drawn:
    """What the first batch was made of.

    Attributes:
        count: samples, 0 where unknown.
        stacked: do they lie along the first axis of each tensor for sure, as torch's own collate function puts them?
    """

    count: int = 0
    stacked: bool = False


def shuffles(loader: Any) -> bool | None:
    """Does the loader draw its samples in random order? None where it cannot be told."""
    sampler = getattr(loader, "sampler", None)
    batches = getattr(loader, "batch_sampler", None)
    if batches is not None and type(batches).__module__.partition(".")[0] not in KNOWN:
        return None
    if isinstance(sampler, (RandomSampler, WeightedRandomSampler, SubsetRandomSampler)):
        return True
    if type(sampler) is SequentialSampler:
        return False
    declared = getattr(sampler, "shuffle", None)
    return declared if isinstance(declared, bool) else None


def batch_size(loader: Any) -> int:
    """Samples per batch, 0 where the loader has no fixed size."""
    size = getattr(loader, "batch_size", None)
    if size is None and isinstance(getattr(loader, "batch_sampler", None), BatchSampler):
        size = loader.batch_sampler.batch_size
    return size if isinstance(size, int) and not isinstance(size, bool) else 0


def drawn(loaders: Iterable[Any], changed: bool = False) -> Drawn:
    """For the first batch of the first of several loaders, unless it is ``changed`` on its way."""
    loader = next(iter(loaders), None)
    size, samples = batch_size(loader), samples_per_epoch(loader)
    own = getattr(loader, "collate_fn", None) is default_collate and gathers(loader)
    return Drawn(min(size, samples) if samples > 0 else size, own and not changed)


def gathers(loader: Any) -> bool:
    """Does it make a batch of several items, as a ``DataLoader`` without automatic batching does not?"""
    if size := batch_size(loader):
        return size > 1
    drawn_together = isinstance(getattr(loader, "sampler", None), BatchSampler)
    return drawn_together or getattr(loader, "batch_sampler", None) is not None


def items_are_batches(loader: Any) -> bool:
    """Does each item of a data set with a length make a batch, as where one graph is all the data?"""
    mapped = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    return mapped and batch_size(loader) < 2 and isinstance(loader.batch_sampler, (BatchSampler, type(None)))


def samples_per_epoch(loader: Any) -> int:
    """Samples that this process gets in an epoch, -1 where unknown (streams, samplers without a length)."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return -1
    try:
        return len(loader.sampler)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return -1


def drops_last(loader: Any) -> bool:
    """Is an incomplete last batch left out?"""
    batches = getattr(loader, "batch_sampler", None)
    return bool(getattr(loader, "drop_last", False) or getattr(batches, "drop_last", False))


def copied_generators(loader: Any) -> tuple[str, ...]:
    """Attributes of the data set that hold a random generator and are used while loading, in several unseeded workers.

    A generator counts as used when a method other than the constructor names the attribute.
    """
    seeds = getattr(loader, "worker_init_fn", None)
    own = getattr(getattr(seeds, "func", seeds), "__name__", "") == LIGHTNINGS_OWN
    if getattr(loader, "num_workers", 0) < 2 or (seeds is not None and not own):
        return ()
    return tuple(dict.fromkeys(_generators(getattr(loader, "dataset", None), "dataset", DEPTH, set())))


def _kinds() -> tuple[type, ...]:
    kinds: list[type] = [random.Random, torch.Generator]
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        kinds += [numpy.Generator, numpy.RandomState]
    return tuple(kinds)


def _generators(value: Any, path: str, depth: int, seen: set[int]) -> Iterator[str]:
    if id(value) in seen or isinstance(value, (torch.Tensor, type)):
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value[:16]):
            yield from _generators(item, f"{path}[{i}]", depth - 1, seen) if depth else ()
        return
    for name, item in list(getattr(value, "__dict__", {}).items()):
        if isinstance(item, _kinds()):
            if name in _names_used(type(value)):
                yield f"{path}.{name}"
        elif depth and (hasattr(item, "__dict__") or isinstance(item, (list, tuple))):
            yield from _generators(item, f"{path}.{name}", depth - 1, seen)


def _names_used(kind: type) -> set[str]:
    """Attribute names in the code of a class's methods, but for those that set it up."""
    names: set[str] = set()
    members = {name: member for base in reversed(kind.__mro__[:-1]) for name, member in vars(base).items()}
    for name, member in members.items():
        code = getattr(getattr(member, "__func__", member), "__code__", None)
        if name not in SETTING_UP and isinstance(code, CodeType):
            names |= _names_in(code)
    return names


def _names_in(code: CodeType) -> set[str]:
    loaded = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_ATTR", "LOAD_METHOD")}
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return loaded.union(*map(_names_in, inner))
