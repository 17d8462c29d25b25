"""A trial step of a model without a training script, on the CPU, watched for other accelerators."""

import contextlib
import importlib
import inspect
import io
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from ..alerts import Alert
from ..summary import Summary

BATCHES = 16
"""Training batches of a loader where a target compiles for shapes; otherwise one step tells everything."""


class CannotTryError(Exception):
    """What the user gave cannot be tried; one line says why."""


@dataclass(frozen=True)
class Trial:
    """What came of it.

    Attributes:
        alerts: ranked alerts of ``WD4xx``.
        summary: what was judged and what was not.
        error: the exception that ended the trial, as text; empty for none.
    """

    alerts: tuple[Alert, ...]
    summary: Summary
    error: str = ""


def made_by(spec: str) -> tuple[Any, Any, Any]:
    """``(module, training data, validation data)`` from ``module:factory``, where the factory returns the first two or
    all three.

    Raises:
        CannotTryError: in one line.
    """
    name, colon, attribute = spec.partition(":")
    if not (name and colon and attribute):
        raise CannotTryError(f"{spec!r} is not of the form module:factory")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(name), attribute)
    except AttributeError:
        raise CannotTryError(f"module {name!r} has no {attribute!r}") from None
    except Exception as error:
        raise CannotTryError(f"cannot import {name!r}: {_line(error)}") from error
    if not callable(factory):
        raise CannotTryError(f"{spec} is not callable")
    with contextlib.suppress(ValueError):
        needed = [p.name for p in inspect.signature(factory).parameters.values() if _required(p)]
        if needed:
            raise CannotTryError(f"{spec} needs arguments ({', '.join(needed)}); give a factory that needs none")
    try:
        made = factory()
    except Exception as error:
        raise CannotTryError(f"{spec} raised {_line(error)}") from error
    return _sorted_out(made, spec)


def _required(parameter: inspect.Parameter) -> bool:
    variable = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in variable


def _sorted_out(made: Any, spec: str) -> tuple[Any, Any, Any]:
    from torch import nn

    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        got = type(made).__name__ if not isinstance(made, tuple) else ", ".join(type(m).__name__ for m in made)
        raise CannotTryError(f"{spec} must return a LightningModule and a batch or loader, got {got}")
    if not hasattr(made[0], "training_step"):
        raise CannotTryError(f"{spec} returned a {type(made[0]).__name__}, which is no LightningModule")
    train = _loader(made[1])
    return made[0], train, _loader(made[2]) if len(made) == 3 else train


def _loader(data: Any) -> Any:
    from torch.utils.data import DataLoader

    return data if isinstance(data, DataLoader) else _Repeated(data)


class _Repeated:
    """A loader of one ready-made batch."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[Any]:
        return repeat(self._batch, BATCHES)


def trial(
    module: Any,
    train: Any,
    validation: Any,
    targets: Sequence[str],
    precision: str | None = None,
    torch_version: str = "",
) -> Trial:
    """Train ``module`` for a step (a few where shapes matter) on the CPU and judge it for ``targets``.

    Raises:
        ValueError: for an unknown target or a version of torch that no table reaches; the message lists the valid ones.
    """
    from .. import SanityWatchdog
    from .targets import STATIC, judging_for

    dog = SanityWatchdog(select=["WD4"], targets=targets, fail_on=None)
    lightning = _lightning_of(module)
    error = ""
    with judging_for(torch_version), _quiet(), tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            precision=precision,
            max_steps=BATCHES if set(targets) & set(STATIC) else 1,
            limit_train_batches=BATCHES,
            limit_val_batches=1,
            num_sanity_val_steps=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            callbacks=[dog],
        )
        try:
            trainer.fit(module, train, validation if _validates(lightning, module) else None)
        except Exception as raised:  # noqa: BLE001
            error = _line(raised)
    return Trial(dog.alerts, dog.summary, error)


def _lightning_of(module: Any) -> Any:
    """``lightning.pytorch`` or ``pytorch_lightning``, whichever the module is made of."""
    old = any(base.__module__.startswith("pytorch_lightning.") for base in type(module).__mro__)
    return importlib.import_module("pytorch_lightning" if old else "lightning.pytorch")


def _validates(lightning: Any, module: Any) -> bool:
    return type(module).validation_step is not lightning.LightningModule.validation_step


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the trial's own chatter, and what the user's code prints, out of the report."""
    loggers = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric", "pytorch_lightning")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _line(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
