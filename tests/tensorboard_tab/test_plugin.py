"""The routes of the tab, through TensorBoard processes with either data server."""

import json
import urllib.error
import urllib.request

import pytest

from sanity_watchdog.checks import CHECKS

from .boards import Board
from .logs import HOSTILE


@pytest.fixture(params=["fast", "slow"])
def board(boards: dict[str, Board], request: pytest.FixtureRequest) -> Board:
    return boards[request.param]


def test_every_run_has_its_verdict(board: Board) -> None:
    found = {r["run"]: r for r in board.tab("runs")["runs"]}
    verdicts = {name.removesuffix("/watchdog"): r["verdict"] for name, r in found.items()}
    verdicts.pop("live", None)
    assert verdicts == {
        "bad": "fail",
        "warned": "warn",
        "good": "pass",
        "broken": "incomplete",
        "going": "running",
        "resumed": "pass",
        "crowded": "warn",
    }
    assert found["good/watchdog"]["loss"]["seen"] == 2.312
    assert found["going/watchdog"]["loss"]["seen"] == {"$f": "nan"}
    assert found["going/watchdog"]["vitals"]["runtime"] == "32-true on cpu"
    assert all(r["layers"] for r in found.values() if r["run"] != "live/watchdog")


def test_one_run_comes_whole(board: Board) -> None:
    found = board.tab("run", run="bad/watchdog")
    assert [a["code"] for a in found["alerts"]] == ["WD101", "WD301", "WD302", "WD123"]
    assert found["alerts"][1]["silence"] == 'SanityWatchdog(ignore=["WD301:net.2.weight"])'
    assert (found["alerts"][1]["step"], found["alerts"][1]["last_step"], found["alerts"][1]["count"]) == (8, 890, 17)
    assert found["alerts"][2]["subjects"] == [HOSTILE]
    assert found["ignored"][0]["reason"] == "frozen on purpose"


def test_ten_thousand_alerts_come_back(board: Board) -> None:
    found = board.tab("run", run="crowded/watchdog")
    assert len(found["alerts"]) == 10_000
    assert len({a["where"] for a in found["alerts"]}) == 10_000


def test_both_fits_of_a_resumed_run_come_back(board: Board) -> None:
    found = board.tab("run", run="resumed/watchdog")
    assert (found["fits"], found["earlier"], found["counts"]["error"]) == (2, 1, 0)
    assert [(a["code"], a["fit"]) for a in found["alerts"]] == [("WD101", 1)]


def test_layers_come_as_pictures(board: Board) -> None:
    underflow, largest = board.tab("layers", run="crowded/watchdog")["pictures"]
    assert (underflow["quantity"], largest["quantity"]) == ("underflow_share", "log2_largest_gradient")
    assert (len(underflow["names"]), len(underflow["steps"])) == (1000, 20)
    assert board.tab("layers", run="nowhere")["pictures"] == []


def test_every_check_has_its_page(board: Board) -> None:
    for check in (CHECKS[0], CHECKS[-1]):
        assert board.tab("page", code=check.code)["page"] == check.page


@pytest.mark.parametrize(("route", "query"), [("run", {"run": "../../etc"}), ("page", {"code": "<b>"})])
def test_what_is_not_there_is_a_plain_answer(board: Board, route: str, query: dict[str, str]) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        board.tab(route, **query)
    assert caught.value.code == 404
    assert caught.value.headers.get_content_type() == "application/json"
    assert json.load(caught.value)["error"]


def test_the_script_is_one_file(board: Board) -> None:
    with urllib.request.urlopen(f"{board.url}/data/plugin/watchdog/index.js", timeout=30) as answer:
        assert answer.headers.get_content_type() == "text/javascript"
        text = answer.read().decode()
    assert "export async function render" in text
    assert "innerHTML" not in text
    for word in ("import ", "import(", "https:"):
        assert word not in text
