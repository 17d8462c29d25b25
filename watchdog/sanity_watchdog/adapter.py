"""Reads a Lightning Trainer into a ``Run``: together with ``callback.py`` the only place that knows a Trainer."""

import contextlib
import inspect
import itertools
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from . import __version__
from .observe.run import Run, Schedule
from .settings import Settings
from .summary import RunInfo

RECORD = "watchdog.jsonl"
BATCHES = "watchdog_batches"
LIGHTNING = ("lightning", "pytorch_lightning")
SEARCHES = ("LearningRateFinder", "BatchSizeFinder")
FOREIGN = (*LIGHTNING, "torch")
COUNTERS = frozenset(("current_epoch", "global_step"))
ON_THE_WAY = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
"""Methods of modules and data modules that a batch goes through between its loader and the step."""
_FITS = itertools.count(1)


def flat_loaders(loaders: Any) -> Iterator[Any]:
    """Dataloaders out of whatever structure the user gave."""
    if loaders is None:
        return
    inner = getattr(loaders, "iterables", loaders)  # CombinedLoader
    if isinstance(inner, dict):
        for loader in inner.values():
            yield from flat_loaders(loader)
    elif isinstance(inner, (list, tuple)):
        for loader in inner:
            yield from flat_loaders(loader)
    else:
        yield inner


def logged_step(trainer: Any) -> int:
    """The x-axis step of what the user logs now: optimizer steps before this batch's own."""
    try:  # private; ``global_step`` counts every optimizer's steps
        return trainer.fit_loop.epoch_loop._batches_that_stepped  # type: ignore[no-any-return]
    except AttributeError:
        return int(trainer.global_step)


def last_step(trainer: Any) -> int:
    """``logged_step`` of the batch that ended last, when no other has begun."""
    loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
    accumulates = getattr(loop, "_should_accumulate", None)  # private; what decides whether it was counted
    return logged_step(trainer) - (accumulates is not None and not accumulates())


def compiles_steps(trainer: Any, module: Any) -> bool:
    """Was what takes the optimizer steps given to ``torch.compile``, so that all they call is traced as well?"""
    steps = [getattr(module, "optimizer_step", None), *(getattr(o, "step", None) for o in trainer.optimizers)]
    compiled = (s for s in steps if not getattr(s, "_torchdynamo_disable", False))  # as LBFGS's is by torch itself
    return any(hasattr(step, "_torchdynamo_orig_callable") for step in compiled)


def scaler_of(trainer: Any, module: Any) -> Any:
    """The loss scaler: of the precision plugin, or an attribute of the module in manual optimisation."""
    found = getattr(trainer.precision_plugin, "scaler", None)
    if found is None:
        kinds = (torch.amp.GradScaler,)
        found = next((v for v in vars(module).values() if isinstance(v, kinds)), None)
    return found


def has_lazy(module: torch.nn.Module) -> bool:
    """Does a parameter or buffer wait for the first batch to learn its shape?"""
    return any(map(is_lazy, (*module.parameters(), *module.buffers())))


def accelerator_name(trainer: Any) -> str:
    """``cpu``, ``cuda``, ``mps``, ``tpu``, … whatever the Trainer was asked for."""
    device = trainer.strategy.root_device.type
    return "tpu" if device == "xla" else str(device)


def batch_of(error: BaseException) -> Any:
    """The training batch that Lightning's loop was at when this was raised, where the traceback shows it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "advance" and "batch_idx" in frame.f_locals:
            return frame.f_locals.get("batch")
    return None


def asked_precision() -> str | None:
    """The ``precision`` of the Trainer that is being made further up the stack: empty for none, None without Trainer.

    Lightning overwrites what it was asked for when it falls back, so it is read while the Trainer is made.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and {"precision", "callbacks"}.issubset(frame.f_code.co_varnames):
            return str(frame.f_locals.get("precision") or "")
        frame = frame.f_back
    return None


def accumulation_of(trainer: Any) -> dict[int, int]:
    """Batches per optimizer step by the epoch from which on they hold, where a callback changes them."""
    for callback in trainer.callbacks:
        if any(base.__name__ == "GradientAccumulationScheduler" for base in type(callback).__mro__):
            return dict(callback.scheduling)
    return {}


def only_searches(trainer: Any) -> bool:
    """Does this fit end with ``Tuner.lr_find``'s or ``Tuner.scale_batch_size``'s search, so that nothing is trained?"""
    searches = (c for c in trainer.callbacks if any(base.__name__ in SEARCHES for base in type(c).__mro__))
    return any(getattr(c, "_early_exit", False) for c in searches)  # private; unset where a real fit follows


def thaws(trainer: Any) -> bool:
    """Is there a callback that freezes parameters before the fit and gives them to the optimizers later?"""
    return any(base.__name__ == "BaseFinetuning" for c in trainer.callbacks for base in type(c).__mro__)


def unused_stops(strategy: Any) -> bool:
    """Does this strategy's DistributedDataParallel expect a gradient for every parameter?"""
    settings = getattr(strategy, "_ddp_kwargs", None)  # private; the only place where Lightning keeps them
    if not isinstance(settings, dict) or not type(strategy).__name__.startswith("DDP"):
        return False
    return not settings.get("find_unused_parameters", False) and not settings.get("static_graph", False)


def changes_batches(*owners: Any) -> bool:
    """Has one of a module and a data module (None for none) a method of the user's that batches go through?"""
    methods = [getattr(type(o), name, None) for o in owners for name in ON_THE_WAY if o is not None]
    return any(str(getattr(m, "__module__", "")).partition(".")[0] not in LIGHTNING for m in methods)


def asks_when(module: Any) -> bool:
    """Does the user's step, or a method that it calls, ask for the number of the step or the epoch?"""
    waiting, seen = ["training_step"], {""}
    while waiting:
        name = waiting.pop()
        method: Any = getattr(type(module), name, None)
        code = getattr(inspect.unwrap(method), "__code__", None)
        if name in seen or code is None or str(method.__module__).partition(".")[0] in FOREIGN:
            continue
        seen.add(name)
        names = set(_names(code))
        if not COUNTERS.isdisjoint(names):
            return True
        waiting += names
    return False


def _names(code: CodeType) -> Iterator[str]:
    """Names of attributes and globals in a function's code, and in that of the functions in it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def describe(
    trainer: Any, module: Any, settings: Settings, *, complete: bool, asked: str = "", batches: str = ""
) -> Run:
    """What observers know of the run. ``complete`` once the training loaders exist; ``batches``: where to save some."""
    clip = trainer.gradient_clip_val
    accumulation = accumulation_of(trainer)
    begun = [epoch for epoch in accumulation if epoch <= trainer.current_epoch]
    schedules = tuple(
        Schedule(c.scheduler, c.interval, c.frequency, c.monitor, _index(c.scheduler, trainer.optimizers))
        for c in getattr(trainer, "lr_scheduler_configs", ())
    )
    model = getattr(trainer.strategy, "model", None)
    return Run(
        module=module,
        wrapper=model if isinstance(model, torch.nn.Module) and model is not module else None,
        optimizers=tuple(getattr(o, "optimizer", o) for o in trainer.optimizers),
        schedules=schedules,
        precision=str(getattr(trainer, "precision", "32-true")),
        asked=asked,
        plugin=trainer.precision_plugin,
        scaler=scaler_of(trainer, module),
        accelerator=accelerator_name(trainer),
        device=trainer.strategy.root_device,
        strategy=type(trainer.strategy).__name__,
        averages=getattr(trainer.strategy, "_model_averager", None) is not None,  # private; post-local SGD
        unused_stops=unused_stops(trainer.strategy),
        world=trainer.world_size,
        rank=trainer.global_rank,
        automatic=module.automatic_optimization,
        accumulate=accumulation[max(begun)] if begun else trainer.accumulate_grad_batches,
        accumulation=accumulation,
        thaws=thaws(trainer),
        phased=asks_when(module),
        epoch=trainer.current_epoch,
        clip=None if not clip else (float(clip), str(trainer.gradient_clip_algorithm or "norm")),
        max_steps=trainer.max_steps,
        max_epochs=-1 if trainer.max_epochs is None else trainer.max_epochs,
        batches_per_epoch=trainer.num_training_batches if complete else float("inf"),
        resumed=trainer.ckpt_path is not None or trainer.global_step > 0,
        loaders=tuple(flat_loaders(trainer.train_dataloader)) if complete else (),
        validation_loaders=tuple(flat_loaders(trainer.val_dataloaders)),
        changes_batches=changes_batches(module, getattr(trainer, "datamodule", None)),
        targets=settings.targets,
        num_classes=settings.num_classes,
        expected_loss=settings.expected_loss,
        every_n_steps=settings.every_n_steps,
        batches=batches,
    )


def _index(scheduler: Any, optimizers: Iterable[Any]) -> int:
    mine = getattr(scheduler, "optimizer", None)
    return next((i for i, o in enumerate(optimizers) if mine in (o, getattr(o, "optimizer", o))), 0)


def info_of(trainer: Any, settings: Settings, log_dir: str | None) -> RunInfo:
    """Where the run writes. ``log_dir`` is a collective of all ranks and is read in ``setup``."""
    rank, quick = trainer.global_rank, bool(trainer.fast_dev_run)
    directory = None if quick else (log_dir or trainer.default_root_dir)
    return RunInfo(
        directory=directory,
        record=record_path(settings.record, directory, rank),
        writers=tuple(_writers(trainer)) if rank == 0 and not quick else (),
        echo=echo(trainer) if rank == 0 else lambda _: None,
        rank=rank,
        world=trainer.world_size,
        fit=next(_FITS),
        versions=versions(),
        started=time.time(),
        settings={
            "select": list(settings.select),
            "ignore": dict(settings.ignore),
            "options": {k: dict(v) for k, v in settings.options.items()},
            "every_n_steps": settings.every_n_steps,
            "save_batches": settings.save_batches,
            "targets": list(settings.targets),
            "fail_on": settings.policy.threshold and settings.policy.threshold.name.lower(),
        },
    )


def record_path(asked: str | None, directory: str | None, rank: int) -> str | None:
    """Path of this rank's record; a folder that was asked for gets the default name."""
    if asked is None and (directory is None or "://" in directory):
        return None
    path = asked or os.path.join(directory or "", RECORD)
    if path.endswith(os.sep) or os.path.isdir(path):
        path = os.path.join(path, RECORD)
    stem, end = os.path.splitext(path)
    return path if rank == 0 else f"{stem}.rank{rank}{end}"


def batches_path(record: str | None) -> str:
    """Folder for saved batches beside the record; empty where there is none."""
    return os.path.join(os.path.dirname(record), BATCHES) if record is not None else ""


def _writers(trainer: Any) -> Iterator[Callable[[], Any]]:
    for logger in trainer.loggers:
        if any(base.__name__ == "TensorBoardLogger" for base in type(logger).__mro__):
            yield partial(getattr, logger, "experiment")  # made when there is something to write


def echo(trainer: Any) -> Callable[[str], None]:
    """Print on stderr, through the progress bar's own ``print`` where one is live."""

    def line(text: str) -> None:
        bar: Any = getattr(trainer, "progress_bar_callback", None)
        live = getattr(bar, "_train_progress_bar", None) or getattr(bar, "_val_progress_bar", None)
        if live is not None and not getattr(live, "disable", True):
            with contextlib.suppress(Exception):
                bar.print(text, file=sys.stderr)
                return
        print(text, file=sys.stderr, flush=True)

    return line


def versions() -> dict[str, str]:
    """Of everything whose version explains a difference."""
    found = {"python": platform.python_version(), "sanity-watchdog": __version__, "torch": torch.__version__}
    for name in ("lightning", "pytorch-lightning", "torchmetrics", "tensorboard"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
