"""Two and four processes: alerts arrive once, faults of replicas are named, healthy practice is not, nobody waits."""

import json
from pathlib import Path
from typing import Any

import pytest

from sanity_watchdog.exchange import LIMIT
from sanity_watchdog.records import read
from sanity_watchdog.reports.load import load

from .cases import SOAK
from .marks import SHARDS
from .processes import Ranks

SAME = ("weights", "optimizers", "generator", "losses", "metrics", "steps", "batches")
"""What a watched run has in common with an unwatched one."""


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("case", ["everything-usual", "dropout"])
def test_healthy_replicas_are_quiet(ranks: Ranks, tmp_path: Path, case: str, world: int) -> None:
    found = ranks.run(case, tmp_path, world)
    assert found.statuses == [0] * world, found.logs
    found.assert_quiet(40)
    assert {"WD601", "WD602", "WD604"} <= set(found.seen[0]["judged"])
    assert found.seen[0]["verdict"] == "pass"


def test_at_most_one_message_per_rank_and_sample(ranks: Ranks, tmp_path: Path) -> None:
    found = ranks.run("plain", tmp_path, 4, trainer={"max_steps": 120})
    assert found.seen[0]["sent"] == [], "rank zero talks to nobody"
    for rank in (1, 2, 3):
        seen = found.seen[rank]
        assert seen["samples"] == 12
        assert len(seen["sent"]) == seen["samples"] + 1, "and a last word"
        assert max(seen["sent"]) < LIMIT / 4


@pytest.mark.parametrize("case", ["everything-usual", pytest.param("sharded", marks=SHARDS)])
def test_a_watched_run_is_bit_for_bit_the_unwatched_one(ranks: Ranks, tmp_path: Path, case: str) -> None:
    plain = ranks.run(case, tmp_path / "plain", watched=False)
    watched = ranks.run(case, tmp_path / "watched", every_n_steps=1)
    watched.assert_quiet(40)
    for rank in (0, 1):
        assert {k: watched.seen[rank][k] for k in SAME} == {k: plain.seen[rank][k] for k in SAME}
    assert plain.seen[0]["losses"] != plain.seen[1]["losses"]


@pytest.mark.parametrize("world", [2, 4])
def test_one_ranks_fault_is_told_once_with_its_rank(ranks: Ranks, tmp_path: Path, world: int) -> None:
    found = ranks.run("one-nan", tmp_path, world, logger=True)
    (alert,) = found.alerts()
    assert (alert["code"], alert["step"], alert["ranks"][0]) == ("WD142", 5, 1), "NaN spreads from rank one"
    (summary,) = [r for r in read(tmp_path / "watchdog.jsonl").records if r["type"] == "summary"]
    assert [a["code"] for a in summary["alerts"]] == ["WD142"]
    (events,) = tmp_path.glob("logs/**/events.out.*")
    assert b"WD142" in events.read_bytes()
    assert found.logs[0].count("WD142 non-finite-loss  ERROR") == 1
    assert "rank 1" in found.logs[0]
    assert "WD142" not in "".join(found.logs[r] for r in range(1, world))
    (run,) = load([tmp_path]).runs
    assert [a.code for a in run.summary.alerts] == ["WD142"]


@pytest.mark.parametrize(
    ("case", "world", "step", "subject", "message", "hint"),
    [
        (
            "diverging",
            2,
            3,
            "net.2.weight",
            "parameters of rank 1 differ from rank 0's in 1 of 4 groups",
            "every change",
        ),
        ("diverging-zero", 4, 3, "net.2.weight", "of rank 0 differ from the others' in 1 of 4 groups", "every change"),
        ("thawed-after-wrapping", 2, 0, "net.0.weight", "in 2 of 4 groups: so do their gradients", "average these"),
        ("bypassed", 2, 0, "net.0.weight", "in 4 of 4 groups: so do their gradients", "autograd.grad"),
    ],
)
def test_replicas_that_part_are_named_with_the_cause(
    ranks: Ranks, tmp_path: Path, case: str, world: int, step: int, subject: str, message: str, hint: str
) -> None:
    (alert,) = ranks.run(case, tmp_path, world).alerts()
    assert (alert["code"], alert["step"], alert["subjects"][0]) == ("WD601", step, subject)
    assert message in alert["message"]
    assert hint in alert["hint"]


def test_shared_data_and_shared_noise(ranks: Ranks, tmp_path: Path) -> None:
    (alert,) = ranks.run("shared-data", tmp_path / "data").alerts()
    assert alert["code"] == "WD602"
    shared = ranks.run("shared-noise", tmp_path / "noise")
    shared.assert_quiet()
    (note,) = shared.alerts("WD603")
    assert (note["severity"], note["where"].rpartition(":")[0][-8:]) == ("info", "cases.py")
    own = ranks.run("own-noise", tmp_path / "own")
    own.assert_quiet()
    assert own.alerts("WD603") == []
    assert "WD603" in own.seen[0]["judged"]


@pytest.mark.parametrize("case", ["local-steps", "compressed-gradients"])
def test_other_ways_to_keep_ranks_together_are_known(ranks: Ranks, tmp_path: Path, case: str) -> None:
    found = ranks.run(case, tmp_path)
    assert found.statuses == [0, 0], found.logs
    found.assert_quiet(40)
    averaged = found.seen[0]["skipped"].get("WD601", "") == "weights are averaged now and then"
    assert averaged == (case == "local-steps")


@pytest.mark.parametrize(("case", "noted"), [("own-queues", ["queue"]), ("broadcast-queues", [])])
def test_buffers_that_nobody_brings_together_are_a_note(
    ranks: Ranks, tmp_path: Path, case: str, noted: list[str]
) -> None:
    found = ranks.run(case, tmp_path)
    found.assert_quiet(40)
    assert [s for a in found.alerts("WD601") for s in a["subjects"]] == noted


# -- stopping


@pytest.mark.parametrize("world", [2, 4])
def test_all_ranks_stop_at_the_same_step(ranks: Ranks, tmp_path: Path, world: int) -> None:
    found = ranks.run("one-nan", tmp_path, world, fail_on="error")
    assert found.statuses == [1] * world
    assert all(seen["error"].startswith("SanityCheckFailed") for seen in found.seen.values())
    assert len({seen["attempts"] for seen in found.seen.values()}) == 1
    assert {a["code"] for a in found.alerts()} == {"WD142"}


def test_all_ranks_stop_before_the_first_update(ranks: Ranks, tmp_path: Path) -> None:
    found = ranks.run("softmax-on-one", tmp_path, fail_on="error")
    assert [seen["error"].partition(":")[0] for seen in found.seen.values()] == ["SanityCheckFailed"] * 2
    assert [seen["steps"] for seen in found.seen.values()] == [0, 0]
    assert [(a["code"], a["count"]) for a in found.alerts()] == [("WD102", 1)]


# -- ranks that die, skip or run out of data


def test_a_killed_ranks_record_survives_it(ranks: Ranks, tmp_path: Path) -> None:
    plain = ranks.run("killed-after-its-alert", tmp_path / "plain", watched=False)
    found = ranks.run("killed-after-its-alert", tmp_path / "watched")
    assert found.statuses == plain.statuses == [1, -9]
    assert "RuntimeError" in found.seen[0]["error"]
    assert "RuntimeError" in plain.seen[0]["error"]
    alerts = [r["alert"] for r in read(found.folder / "watchdog.rank1.jsonl").records if r["type"] == "alert"]
    assert [(a["code"], a["ranks"]) for a in alerts] == [("WD102", [1])]
    assert [(a["code"], a["ranks"]) for a in found.alerts()] == [("WD102", [1])], "it had reached rank zero as well"


def test_the_other_ranks_tell_what_a_killed_rank_zero_cannot(ranks: Ranks, tmp_path: Path) -> None:
    """The store dies with rank zero."""
    plain = ranks.run("rank-zero-killed", tmp_path / "plain", watched=False)
    found = ranks.run("rank-zero-killed", tmp_path / "watched")
    assert found.statuses == plain.statuses == [-9, 1]
    assert found.seen[1]["error"].partition(":")[0] == plain.seen[1]["error"].partition(":")[0]
    (run,) = load([found.folder]).runs
    assert (run.verdict, run.finished) == ("fail", False)
    assert "WD102" in [a.code for a in run.summary.alerts]


@pytest.mark.parametrize("case", ["no-loss-on-one", "skipping-alone", "uneven"])
def test_what_ends_a_run_ends_it_as_it_would_without_us(ranks: Ranks, tmp_path: Path, case: str) -> None:
    plain = ranks.run(case, tmp_path / "plain", watched=False)
    found = ranks.run(case, tmp_path / "watched")
    assert 1 in plain.statuses
    assert found.statuses == plain.statuses
    assert [s["error"][:12] for s in found.seen.values()] == [s["error"][:12] for s in plain.seen.values()]
    assert [s["steps"] for s in found.seen.values()] == [s["steps"] for s in plain.seen.values()]
    assert [a["code"] for a in found.alerts()] == (["WD604"] if case == "uneven" else [])


@pytest.mark.parametrize("case", ["uneven-but-short", "uneven-and-joined"])
def test_uneven_shards_that_harm_nobody(ranks: Ranks, tmp_path: Path, case: str) -> None:
    found = ranks.run(case, tmp_path)
    assert found.statuses == [0, 0], found.logs
    found.assert_quiet(40)
    assert ("WD604" in found.seen[0]["judged"]) == (case == "uneven-but-short")
    if case == "uneven-and-joined":
        assert found.seen[0]["skipped"]["WD604"] == "uneven inputs are joined"


def test_a_long_run_with_skipped_batches_and_a_killed_rank(ranks: Ranks, tmp_path: Path) -> None:
    found = ranks.run("soak", tmp_path)
    assert found.statuses == [1, -9]
    seen: dict[str, Any] = found.seen[0]
    assert seen["steps"] == seen["attempts"] == SOAK - 100
    assert seen["batches"] > SOAK
    assert "RuntimeError" in seen["error"]
    assert not seen["broken"]
    assert found.alerts() == []
    assert {"WD601", "WD602"} <= set(seen["judged"])
    assert json.loads((tmp_path / "watchdog.rank1.jsonl").read_text().splitlines()[0])["type"] == "run"
