"""What the sink writes, read back through real TensorBoard processes with either of its two data servers."""

import itertools
import json
import math
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from torch.utils.tensorboard import SummaryWriter

from sanity_watchdog import records
from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.evidence.readings import Histogram, Layers, Scalars
from sanity_watchdog.sinks import TensorBoardSink
from sanity_watchdog.summary import Batch, RunInfo, Summary

HOSTILE = (
    "a|b",
    "<script>alert(1)</script>",
    "two\nlines",
    "_under_ *star* `tick`",
    "x" * 10_000,
    "lone\ud800",
    "[a](b)",
)
ERROR = Alert(
    "WD301", "zeroed-parameter", Severity.ERROR, "all 2048 values are exactly zero", subjects=("net.0.weight",)
)
WARNING = Alert("WD123", "unscaled-input", Severity.WARNING, "values up to 255", step=0)


def some(count: int, step: int = 0) -> tuple[Alert, ...]:
    return tuple(
        replace(ERROR, code=f"WD3{i:02}", where=f"train.py:{i}", step=step, last_step=step) for i in range(count)
    )


def batch(step: int, *alerts: Alert, **more: Any) -> Batch:
    return Batch(step, alerts, verdict="fail", counts={"info": 0, "warning": 0, "error": len(alerts)}, **more)


def layers(step: int, *values: float) -> Layers:
    names = tuple(f"layer{i}" for i in range(len(values)))
    return Layers(step=step, quantity="log2_gradient", names=names, values=values)


def write_many(folder: Path) -> None:
    """Alerts of several checks, several batches of them at one step, then later ones."""
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(folder)))
    sink.write(batch(0, *some(5)))
    sink.write(batch(0, WARNING))
    sink.write(batch(0, *some(7)[5:]))
    for step in range(1, 30):
        sink.write(batch(step, replace(ERROR, count=step, step=step)))
    sink.close(Summary("fail", (*some(7), WARNING, ERROR), step=29))


def write_resumed(folder: Path) -> None:
    """Two fits into the user's own folder, the second from an earlier step, the user's curve between our records."""
    for start in (0, 10):
        writer = SummaryWriter(str(folder))
        sink = TensorBoardSink()
        sink.open(RunInfo(directory=str(folder), writers=(lambda writer=writer: writer,)))
        for step in range(start, start + 20):
            writer.add_scalar("loss", 1.0, step if start == 0 else step + 10)
            if step % 5 == 0:
                sink.write(batch(step, replace(ERROR, step=step, where=f"fit{start}:{step}")))
        sink.close(Summary("fail", (ERROR,), step=start + 19))
        writer.close()
        time.sleep(1.1)


def write_hostile(folder: Path) -> None:
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(folder)))
    alerts = tuple(
        replace(ERROR, where=f"file.py:{i}", subjects=(name,), message=name, hint=name, evidence=((name, name),))
        for i, name in enumerate(HOSTILE)
    )
    sink.write(batch(0, *alerts))


def write_numbers(folder: Path) -> None:
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(folder)))
    values = (math.nan, math.inf, -math.inf, 5e-324, 0.1)
    sink.write(batch(3, replace(ERROR, evidence=tuple((f"v{i}", v) for i, v in enumerate(values)))))
    for step in (0, 1, 101):
        sink.write(
            Batch(step, readings=(layers(step, math.nan, -math.inf, step), Scalars(step=step, values={"x": step})))
        )
    edges, counts = (-20.0, -10.0, 0.0), (1.0, 2.0, 3.0)
    sink.write(Batch(101, readings=(Histogram(step=101, tag="log2 gradient", edges=edges, counts=counts),)))
    sink.close(Summary("pass", step=101))


def write_quiet(folder: Path) -> None:
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(folder)))
    vitals = {"loss": "first loss 2.312 (ln 10 = 2.303)"}
    readings = (Scalars(values={"first_loss": 2.312, "ln_k": 2.303}),)
    sink.write(Batch(0, readings=readings, vitals=vitals))
    sink.close(Summary("pass", judged=("WD101",), skipped={"WD201": "no fp16"}, vitals=vitals, step=9))


RUNS = {
    "many/watchdog": write_many,
    "resumed": write_resumed,
    "hostile/watchdog": write_hostile,
    "numbers/watchdog": write_numbers,
    "quiet/watchdog": write_quiet,
}


@dataclass
class Board:
    url: str

    def get(self, route: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{route}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            return json.load(answer)

    def text(self, run: str, tag: str) -> list[dict[str, Any]]:
        return self.get("/data/plugin/text/text", run=run, tag=tag)

    def scalars(self, run: str, tag: str) -> list[list[float]]:
        return self.get("/data/plugin/scalars/scalars", run=run, tag=tag)

    def series(self, run: str, prefix: str) -> list[list[Any]]:
        found = self.get("/data/plugin/records/all")[run]
        return [point for tag, s in found.items() if tag.startswith(prefix) for point in s["points"]]

    def records(self, run: str) -> list[dict[str, Any]]:
        return [r for _, text in self.series(run, "watchdog/alerts/") for r in records.decode(text)]

    def alerts(self, run: str) -> list[Alert]:
        return [records.alert_from_dict(r["alert"]) for r in self.records(run) if r["type"] == "alert"]


def _serve(logs: Path, fast: str) -> tuple[subprocess.Popen[str], Board]:
    arguments = ["--logdir", str(logs), "--host", "127.0.0.1", "--port", "0", f"--load_fast={fast}"]
    process = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).with_name("serve_records.py")),
            *arguments,
            "--samples_per_plugin=watchdog=0",
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if "http://127.0.0.1:" in line:
            board = Board("http://127.0.0.1:" + line.partition("http://127.0.0.1:")[2].split("/")[0].split()[0])
            break
    else:
        raise AssertionError("TensorBoard did not start: " + "".join(said))
    deadline = time.monotonic() + 60
    while True:
        there = board.get("/data/plugin/text/tags")
        if all("watchdog/0_summary" in there.get(run, ()) for run in RUNS):
            return process, board
        if time.monotonic() > deadline:
            raise AssertionError(f"TensorBoard serves only {there}")
        time.sleep(0.3)


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Board]]:
    logs = tmp_path_factory.mktemp("logs")
    for run, write in RUNS.items():
        write(logs / run.removesuffix("/watchdog"))
    with ThreadPoolExecutor() as pool:
        started = dict(zip(("true", "false"), pool.map(_serve, (logs, logs), ("true", "false")), strict=True))
    try:
        yield {fast: board for fast, (_, board) in started.items()}
    finally:
        for process, _ in started.values():
            process.terminate()
            process.wait(20)


@pytest.fixture(params=["true", "false"], ids=["load_fast", "load_slow"])
def board(boards: dict[str, Board], request: pytest.FixtureRequest) -> Board:
    return boards[request.param]


def test_every_alert_comes_back(board: Board) -> None:
    found = board.alerts("many/watchdog")
    assert set(found) >= {*some(7), WARNING}
    assert len(found) == 7 + 1 + 29
    assert sorted(step for step, _ in board.series("many/watchdog", "watchdog/alerts/")) == list(range(33))
    assert records.summary_from_record(board.records("many/watchdog")[-1]).alerts == (*some(7), WARNING, ERROR)


def test_every_code_has_its_card(board: Board) -> None:
    tags = board.get("/data/plugin/text/tags")["many/watchdog"]
    assert set(tags) == {"watchdog/0_summary", "watchdog/warning/WD123", *(f"watchdog/error/{a.code}" for a in some(7))}
    card = board.text("many/watchdog", "watchdog/error/WD301")[-1]
    assert "all 2048 values are exactly zero" in card["text"]
    assert "<table>" in card["text"]
    assert "FAIL" in board.text("many/watchdog", "watchdog/0_summary")[-1]["text"]


def test_resuming_loses_no_alert_and_no_curve(board: Board) -> None:
    places = [a.where for a in board.alerts("resumed")]
    assert sorted(places) == sorted([*(f"fit0:{s}" for s in (0, 5, 10, 15)), *(f"fit10:{s}" for s in (10, 15, 20, 25))])
    assert [step for _, step, _ in board.scalars("resumed", "loss")] == list(range(40))


def test_hostile_names_stay_text(board: Board) -> None:
    found = board.alerts("hostile/watchdog")
    assert [a.subjects[0] for a in found] == list(HOSTILE)
    html = board.text("hostile/watchdog", "watchdog/error/WD301")[-1]["text"]
    assert "<script" not in html
    assert "<em>" not in html
    assert "<a " not in html
    assert html.count("<tr>") == 1 + len(HOSTILE)
    for shown in ("a|b", "&lt;script&gt;alert(1)&lt;/script&gt;", "_under_ *star* `tick`", "[a](b)"):
        assert shown in html.replace("&#124;", "|")
    assert "x" * 1000 not in html


def test_numbers_come_back_exactly(board: Board) -> None:
    (alert,) = board.alerts("numbers/watchdog")
    assert [repr(v) for _, v in alert.evidence] == ["nan", "inf", "-inf", "5e-324", "0.1"]
    points = board.series("numbers/watchdog", "watchdog/layers/log2_gradient")
    assert points == [[step, ["nan", "-inf", f"{step:.1f}"]] for step in (0, 1, 101)]
    content = board.get("/data/plugin/records/all")["numbers/watchdog"]["watchdog/layers/log2_gradient"]["content"]
    assert json.loads(content)["names"] == ["layer0", "layer1", "layer2"]
    assert [row[1:] for row in board.scalars("numbers/watchdog", "watchdog/x")] == [[s, s] for s in (0, 1, 101)]
    histograms = board.get("/data/plugin/histograms/histograms", run="numbers/watchdog", tag="watchdog/log2 gradient")
    assert [row[1] for row in histograms] == [101]


def test_a_quiet_run_is_visible(board: Board) -> None:
    (card,) = board.text("quiet/watchdog", "watchdog/0_summary")
    for words in ("PASS", "first loss 2.312", "2 checks: 1 judged, 1 skipped (WD201: no fp16)"):
        assert words in card["text"]
    assert board.scalars("quiet/watchdog", "watchdog/first_loss")[0][2] == pytest.approx(2.312)
    assert board.scalars("quiet/watchdog", "watchdog/ln_k")[0][2] == pytest.approx(2.303)
    assert [row[2] for row in board.scalars("quiet/watchdog", "watchdog/errors")] == [0]
    kinds = [r["type"] for r in board.records("quiet/watchdog")]
    assert kinds == ["run", "scalars", "state", "summary"]


def test_stock_scalars_carry_no_more_than_a_few_curves(board: Board) -> None:
    tags = board.get("/data/plugin/scalars/tags")
    assert set(tags["numbers/watchdog"]) == {"watchdog/x", "watchdog/errors", "watchdog/warnings"}


KILLED = """
import os, signal, sys
from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.sinks import JsonLinesSink, TensorBoardSink
from sanity_watchdog.summary import Batch, RunInfo
info = RunInfo(directory=sys.argv[1], record=sys.argv[1] + "/watchdog.jsonl")
if sys.argv[2] == "users":
    from torch.utils.tensorboard import SummaryWriter
    info = RunInfo(directory=sys.argv[1], record=info.record, writers=(lambda w=SummaryWriter(sys.argv[1]): w,))
for sink in (JsonLinesSink(), TensorBoardSink()):
    sink.open(info)
    sink.write(Batch(0, (Alert("WD301", "zeroed-parameter", Severity.ERROR, "all zero"),)))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("whose", ["users"] * 3 + ["own"] * 7)
def test_a_killed_process_has_written_its_alert(tmp_path: Path, whose: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), whose], check=False)
    assert done.returncode == -signal.SIGKILL
    (line,) = (r for r in records.read(tmp_path / "watchdog.jsonl").records if r["type"] == "alert")
    assert line["alert"]["code"] == "WD301"
    (file,) = tmp_path.rglob("events.out.tfevents.*")
    tags = [v.tag for event in LegacyEventFileLoader(str(file)).Load() for v in event.summary.value]
    assert "watchdog/error/WD301" in tags
    assert any(tag.startswith("watchdog/alerts/") for tag in tags)


def test_nothing_is_made_before_there_is_something_to_write(tmp_path: Path) -> None:
    def never() -> Any:
        raise AssertionError("the user's writer was asked for")

    TensorBoardSink().open(RunInfo(directory=str(tmp_path), writers=(never,)))
    TensorBoardSink().open(RunInfo(directory=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("info", [{"directory": None}, {"rank": 1}, {"directory": "s3://bucket/run"}], ids=str)
def test_other_ranks_and_fast_dev_run_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, info: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = TensorBoardSink()
    sink.open(RunInfo(**{"directory": str(tmp_path), **info}))
    sink.write(batch(0, ERROR))
    sink.close(Summary("fail", (ERROR,)))
    assert list(tmp_path.iterdir()) == []


def test_a_stand_in_writer_is_left_alone(tmp_path: Path) -> None:
    class StandIn:
        def _get_file_writer(self) -> None:
            return None

    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(tmp_path), writers=(StandIn,)))
    sink.write(batch(0, ERROR))
    sink.close(Summary("fail", (ERROR,)))
    assert list(tmp_path.iterdir()) == []


def test_the_users_writer_is_not_closed(tmp_path: Path) -> None:
    writer = SummaryWriter(str(tmp_path))
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(tmp_path), writers=(lambda: writer,)))
    sink.close(Summary("pass"))
    writer.add_scalar("loss", 1.0, 0)
    writer.close()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_written_raises(tmp_path: Path) -> None:
    (tmp_path / "watchdog").write_text("a file where the folder should be")
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(tmp_path)))
    with pytest.raises(OSError, match="watchdog"):
        sink.write(batch(0, ERROR))


def test_vectors_thin_out_in_a_long_run(tmp_path: Path) -> None:
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(tmp_path)))
    for step in range(2000):
        sink.write(Batch(step, readings=(layers(step, 1.0),)))
    (file,) = tmp_path.rglob("events.out.tfevents.*")
    events = LegacyEventFileLoader(str(file)).Load()
    steps = [event.step for event in events for value in event.summary.value if "layers" in value.tag]
    assert steps[:400] == list(range(400))
    assert len(steps) == 400 + 200 + 200 + 50
    assert steps[-1] == 1992


def test_a_quiet_run_tells_its_state_now_and_then(tmp_path: Path) -> None:
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(tmp_path)))
    for step in range(1000):
        sink.write(Batch(step, vitals={"gradients": f"{step}"}))
    (file,) = tmp_path.rglob("events.out.tfevents.*")
    events = LegacyEventFileLoader(str(file)).Load()
    texts = [v.tensor.string_val[0] for event in events for v in event.summary.value if "alerts" in v.tag]
    states = [r for text in texts for r in records.decode(text) if r["type"] == "state"]
    assert 20 < len(states) < 80
    assert states[-1]["step"] > 900
    assert states[-1]["vitals"] == {"gradients": str(states[-1]["step"])}


def test_two_fits_with_one_writer_never_fall_back_in_step(tmp_path: Path) -> None:
    writer = SummaryWriter(str(tmp_path))
    for _ in range(2):
        sink = TensorBoardSink()
        sink.open(RunInfo(directory=str(tmp_path), writers=(lambda: writer,)))
        sink.write(batch(0, ERROR))
        sink.close(Summary("fail", (ERROR,), step=5))
    writer.close()
    (file,) = tmp_path.rglob("events.out.tfevents.*")
    seen: dict[str, list[int]] = {}
    for event in LegacyEventFileLoader(str(file)).Load():
        for value in event.summary.value:
            seen.setdefault(value.tag, []).append(event.step)
    assert all(a < b for steps in seen.values() for a, b in itertools.pairwise(steps))
    assert len(seen["watchdog/0_summary"]) == 4
