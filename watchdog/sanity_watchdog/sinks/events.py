"""What the watchdog puts into a TensorBoard event file, and the two kinds of file it writes to.

TensorBoard's default server takes a step that does not rise as a restarted job and drops the older records of that
tag. So no two records here share a tag and a step, and none goes back.
"""

import os
import shutil
import socket
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ..evidence.readings import Histogram
from ..records import encode

RECORDS = "watchdog"
"""Plugin name of the exact records."""
LAYERS = "watchdog_layers"
"""Plugin name of the layer vectors; a name of its own because sampling is set per plugin."""
SPARE = 1 << 20
"""Free bytes on the disk below which nothing is added to what the user's writer has yet to write."""


class SummaryWriter(Protocol):
    """The part of a file writer that is used."""

    def add_summary(self, summary: Any, global_step: int) -> None: ...

    def flush(self) -> None: ...


_LAST: "WeakKeyDictionary[SummaryWriter, dict[str, int]]" = WeakKeyDictionary()


class Events:
    """Gathers values and adds them to one event file, those of a step together: see ``commit``.

    Args:
        writer: where they go.
        owned: is the file ours to close?
    """

    def __init__(self, writer: SummaryWriter, owned: bool = False) -> None:
        self._writer = writer
        self._owned = owned
        self._path = getattr(getattr(writer, "event_writer", None), "_file_name", None)  # private
        self._last = _LAST.setdefault(writer, {})
        self._gathered: dict[int, list[Any]] = {}

    def record(self, tag: str, text: str) -> None:
        """An exact record, under a step of its own."""
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        self._tensor(tag, self._after(tag), RECORDS, TensorProto(dtype=DT_STRING, string_val=[text.encode()]))

    def text(self, tag: str, markdown: str, step: int) -> None:
        """A card of the Text tab, at ``step`` or the next free one."""
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        value = TensorProto(dtype=DT_STRING, string_val=[markdown.encode()])
        self._tensor(tag, max(step, self._after(tag)), "text", value)

    def vector(self, tag: str, names: Sequence[str], values: Sequence[float], step: int) -> None:
        """One float32 per name; the names travel with the tag's first vector only."""
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.compat.proto.types_pb2 import DT_FLOAT

        if step < self._after(tag):
            return
        content = b"" if tag in self._last else encode({"v": 1, "names": names}).encode()
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=len(values))])
        value = TensorProto(dtype=DT_FLOAT, tensor_shape=shape, float_val=array("f", values))
        self._tensor(tag, step, LAYERS, value, content)

    def scalar(self, tag: str, value: float, step: int, exactly: bool = False) -> None:
        """A point of a curve, at ``step`` or the next free one; with ``exactly``, only where ``step`` is free."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        if not exactly or step >= self._after(tag):
            self._add(tag, max(step, self._after(tag)), Summary.Value(tag=tag, simple_value=value))

    def histogram(self, seen: Histogram) -> None:
        """A histogram from ready-made buckets."""
        from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary

        tag = f"watchdog/{seen.tag}"
        if not seen.edges or seen.step < self._after(tag):
            return
        total = sum(seen.counts)
        mass = sum(edge * count for edge, count in zip(seen.edges, seen.counts, strict=True))
        squares = sum(edge * edge * count for edge, count in zip(seen.edges, seen.counts, strict=True))
        histo = HistogramProto(
            min=seen.edges[0],
            max=seen.edges[-1],
            num=total,
            sum=mass,
            sum_squares=squares,
            bucket_limit=seen.edges,
            bucket=seen.counts,
        )
        self._add(tag, seen.step, Summary.Value(tag=tag, histo=histo))

    def commit(self) -> None:
        """Add what was gathered to the file.

        Raises:
            OSError: the user's file is gone, or its disk nearly full.
        """
        from tensorboard.compat.proto.summary_pb2 import Summary

        if not self._gathered:
            return
        if why := self._obstacle():
            raise OSError(why)
        gathered, self._gathered = self._gathered, {}
        for step, values in gathered.items():
            self._writer.add_summary(Summary(value=values), step)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self.commit()
        if not self._obstacle():
            self._writer.flush()

    def close(self) -> None:
        """Close the file if it is ours."""
        self.commit()
        if self._owned and isinstance(self._writer, EventFile):
            self._writer.close()

    def _obstacle(self) -> str:
        """Why the user's writer had better get nothing: its thread would die of it, and the run with that."""
        if self._path is None:
            return ""
        path = os.fsdecode(self._path)
        if not os.path.exists(path):
            return f"{path} is gone"
        return "the disk is nearly full" if shutil.disk_usage(os.path.dirname(path) or os.curdir).free < SPARE else ""

    def _after(self, tag: str) -> int:
        return self._last.get(tag, -1) + 1

    def _tensor(self, tag: str, step: int, plugin: str, tensor: Any, content: bytes = b"") -> None:
        from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_TENSOR, Summary, SummaryMetadata

        data = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
        metadata = SummaryMetadata(plugin_data=data, data_class=DATA_CLASS_TENSOR)
        self._add(tag, step, Summary.Value(tag=tag, metadata=metadata, tensor=tensor))

    def _add(self, tag: str, step: int, value: Any) -> None:
        self._last[tag] = step
        self._gathered.setdefault(step, []).append(value)


class EventFile:
    """An event file of our own, written at once and without a thread.

    Args:
        folder: made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.watchdog"
        self._file = RecordWriter((folder / name).open("xb", buffering=0))
        self._file.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

    def add_summary(self, summary: Any, global_step: int) -> None:
        """Append one summary."""
        from tensorboard.compat.proto.event_pb2 import Event

        self._file.write(Event(wall_time=time.time(), step=global_step, summary=summary).SerializeToString())

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


def own_events(directory: str) -> Events:
    """A new event file in the folder ``watchdog`` of the run's log directory."""
    return Events(EventFile(Path(directory) / "watchdog"), owned=True)


def users_events(writer: Any) -> Events | None:
    """The event file of the user's ``SummaryWriter``; None where that is a stand-in that writes nothing."""
    file_writer = writer._get_file_writer()  # its public twin, ``file_writer``, is None until something was written
    return None if file_writer is None else Events(file_writer)
