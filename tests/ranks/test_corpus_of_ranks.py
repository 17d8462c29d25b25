"""The corpus' cases of two processes: a fault is named first, healthy training is silent."""

from pathlib import Path

import pytest

from tests.corpus import CASES
from tests.corpus.case import Case

from .processes import Ranks


@pytest.mark.parametrize("case", [c for c in CASES.values() if c.world == 2], ids=lambda c: c.name)
def test_a_case_of_two_ranks(ranks: Ranks, tmp_path: Path, case: Case) -> None:
    found = ranks.run(case.name, tmp_path, seed=0)
    assert found.statuses == [0, 0], found.logs
    assert not found.seen[0]["broken"]
    assert {"WD601", "WD602", "WD604"} <= set(found.seen[0]["judged"])
    alerts = [a["code"] for a in found.alerts()]
    assert alerts[:1] == list(case.first[:1])
    assert set(alerts) <= {*case.codes, *case.also}
