"""`python -m bench ray` on a real Ray Serve."""

import json

import pytest
from integration.ray_cluster.environment import RAY

from bench.__main__ import main

pytestmark = [pytest.mark.ray, pytest.mark.by_hand]


def test_ours_choose_as_in_one_process_and_hashing_without_a_bound_piles_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["ray", "--ray-python", str(RAY.python()), "--quick", "--json"]) == 0
    rows = {row["router"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    for case, requests in {"hot": 30, "zipf": 60, "uniform": 60}.items():
        assert rows["lbch"][case]["as_in_process"] == requests
    assert sorted(rows["lbch"]["hot"]["split"]) == [4, 13, 13]
    assert max(rows["sticky-bounded"]["hot"]["split"]) <= 13
    assert max(rows["consistent hash"]["hot"]["split"]) == 30
