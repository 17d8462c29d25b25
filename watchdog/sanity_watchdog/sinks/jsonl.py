"""``watchdog.jsonl``: the canonical record, one JSON object per line, on disk after every batch."""

from pathlib import Path
from typing import BinaryIO

from ..evidence.readings import Scalars
from ..records import Record, alert_record, cleared_record, encode, run_record, scalars_record, summary_record
from ..summary import Batch, RunInfo, Summary


class JsonLinesSink:
    """Appends to :attr:`RunInfo.record`; without one it writes nothing. The file is made with its first record."""

    def __init__(self) -> None:
        self._info = RunInfo()
        self._file: BinaryIO | None = None

    def open(self, info: RunInfo) -> None:
        self._info = info

    def write(self, batch: Batch) -> None:
        self._append(
            [
                *(scalars_record(r.step, r.values) for r in batch.readings if isinstance(r, Scalars)),
                *(alert_record(a) for a in batch.alerts),
                *(cleared_record(a) for a in batch.cleared),
            ]
        )

    def close(self, summary: Summary) -> None:
        self._append([summary_record(summary)])
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, records: list[Record]) -> None:
        if self._info.record is None or not records:
            return
        if self._file is None:
            self._file = _opened(Path(self._info.record))
            records = [run_record(self._info), *records]
        self._file.write("".join(encode(record) + "\n" for record in records).encode("ascii"))
        self._file.flush()


def _opened(path: Path) -> BinaryIO:
    """``path`` for appending; a record that a killed process left half-written is closed off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab+")
    if file.tell():
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            file.write(b"\n")
    return file
