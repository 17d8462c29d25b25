"""Two processes: alerts arrive once, faults of replicas are named, and nobody is left waiting."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sanity_watchdog.exchange import LIMIT, Exchange

ROOT = Path(__file__).parents[1]
JUDGED = {"WD601", "WD101"}


class Store(dict[str, Any]):
    """What the exchange needs of a ``torch.distributed`` store, counted."""

    calls = 0

    def set(self, key: str, value: str) -> None:
        self.calls += 1
        self[key] = value

    def compare_set(self, key: str, expected: str, value: str) -> str:
        return self.setdefault(key, value)

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def get(self, key: str) -> str:  # type: ignore[override]
        return self[key]

    def delete_key(self, key: str) -> None:
        del self[key]

    def wait(self, keys: list[str], timeout: Any) -> None:
        if not self.check(keys):
            raise RuntimeError("time-out")


def test_messages_arrive_once_in_order_and_are_forgotten() -> None:
    store = Store()
    zero, one = Exchange(store, 0, 2), Exchange(store, 1, 2)
    one.post({"step": 1})
    one.post({"step": 2})
    assert list(zero.collect()) == [(1, {"step": 1}), (1, {"step": 2})]
    assert list(zero.collect()) == []
    assert not store


def test_a_message_too_long_keeps_its_head() -> None:
    store = Store()
    zero, one = Exchange(store, 0, 2), Exchange(store, 1, 2)
    one.post({"step": 1, "alerts": ["x" * LIMIT]})
    assert list(zero.collect()) == [(1, {"step": 1})]


def test_waiting_ends() -> None:
    zero = Exchange(Store(), 0, 2)
    zero.sent = 1
    start = time.monotonic()
    assert list(zero.collect(wait=0.05)) == []
    assert time.monotonic() - start < 5
    zero.together("here")


def test_a_stop_is_seen_by_all() -> None:
    store = Store()
    zero, one = Exchange(store, 0, 2), Exchange(store, 1, 2)
    assert zero.stopped() is None
    first = {"rank": 1, "attempt": 4, "alerts": []}
    assert one.stop(first) == first
    assert zero.stopped() == first == zero.stop({"rank": 0, "attempt": 5, "alerts": []})


def launch(case: str, folder: Path, ranks: int = 2, **options: Any) -> tuple[int, dict[int, dict[str, Any]], str]:
    """Run ``tests.ranks_run``; exit status, what each rank saw, and standard error."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "watchdog"), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.ranks_run", case, str(folder), str(ranks), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT, env=environ, check=False)
    found = {int(p.stem): json.loads(p.read_text()) for p in folder.glob("*.json")}
    return done.returncode, found, done.stderr


def test_healthy_replicas_are_quiet_and_traffic_is_one_message_a_sample(tmp_path: Path) -> None:
    status, ranks, errors = launch("healthy", tmp_path)
    assert status == 0, errors
    assert [a for a in ranks[0]["alerts"] if a["severity"] != "info"] == []
    assert not ranks[0]["broken"]
    assert not ranks[1]["broken"]
    assert set(ranks[0]["judged"]) >= JUDGED
    assert ranks[1]["sets"] == ranks[0]["samples"] + 1, "one message per sample and a last word"
    assert ranks[1]["longest"] < LIMIT / 2


@pytest.mark.parametrize(("case", "code"), [("diverging", "WD601"), ("shared-data", "WD602"), ("one-nan", "WD142")])
def test_faults_of_replicas_are_named_once_at_rank_zero(tmp_path: Path, case: str, code: str) -> None:
    status, ranks, errors = launch(case, tmp_path)
    assert status == 0, errors
    alerts = [a for a in ranks[0]["alerts"] if a["code"] == code]
    assert len(alerts) == 1, ranks[0]["alerts"]
    if case == "one-nan":
        assert alerts[0]["ranks"][0] == 1, "NaN spreads with the gradients: the first rank is the one"
        assert (tmp_path / "watchdog.rank1.jsonl").exists(), "each rank keeps its own record"
    if case == "diverging":
        assert alerts[0]["step"] <= 5
        assert alerts[0]["subjects"][0] == "net.2.weight"


def test_all_ranks_stop_at_the_same_step(tmp_path: Path) -> None:
    status, ranks, _ = launch("one-nan", tmp_path, fail_on="error")
    assert status != 0
    assert ranks[0]["error"] == ranks[1]["error"] == "SanityCheckFailed"
    assert ranks[0]["attempts"] == ranks[1]["attempts"]


def test_all_ranks_stop_before_the_first_update(tmp_path: Path) -> None:
    status, ranks, _ = launch("softmax-on-one", tmp_path, fail_on="error")
    assert status != 0
    assert ranks[0]["error"] == ranks[1]["error"] == "SanityCheckFailed"
    assert not ranks[0]["moved"]
    assert not ranks[1]["moved"]
    assert [a["code"] for a in ranks[0]["alerts"]][:1] == ["WD102"]


def test_a_rank_that_dies_ends_the_job_as_it_would_without_us(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "watched").mkdir()
    plain, _, _ = launch("dying", tmp_path / "plain", watched=False)
    watched, ranks, _ = launch("dying", tmp_path / "watched")
    assert plain != 0
    assert watched == plain
    assert ranks[0]["error"] not in ("", "SanityCheckFailed")
