"""Where the diagnostics logger writes: TensorBoard, the console, and a file of JSON lines."""

from ..summary import Sink
from .console import ConsoleSink
from .jsonl import JsonLinesSink
from .tensorboard import TensorBoardSink


def default_sinks() -> list[Sink]:
    """Fresh sinks for one fit. The record comes first: what follows may fail, it will have been written."""
    return [JsonLinesSink(), TensorBoardSink(), ConsoleSink()]


__all__ = ["ConsoleSink", "JsonLinesSink", "TensorBoardSink", "default_sinks"]
