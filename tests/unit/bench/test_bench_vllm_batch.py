"""`python -m bench vllm-batch` without its servers: what they are asked for, and what is refused."""

import json
from pathlib import Path

import pytest
from coresched_vllm.local.flags import Pool

from bench.__main__ import main
from bench.engine_batch.vllm_command import SETUPS


def test_only_the_coordinated_servers_have_another_scheduler_than_vllms_own() -> None:
    pool = Pool(blocks=96, max_num_seqs=4, max_num_batched_tokens=512, longest_context=4096)
    stock, planned = pool.flags(None), pool.flags(10)
    assert planned[: len(stock)] == stock
    more = planned[len(stock) :]
    assert more[:3] == ["--scheduler-cls", "coresched_vllm.RoutingPrefix", "--additional-config"]
    assert json.loads(more[3]) == {"coresched": {"label_capacity": 10}}
    assert [(setup.planned, setup.service, setup.decoupled) for setup in SETUPS] == [
        (False, False, False),
        (True, True, True),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--vllm-python", "nowhere"], "--vllm-python 'nowhere' cannot be run"),
        (["--vllm-python", "false"], "--vllm-python 'false' has no vLLM"),
        (["--hidden-size", "100"], "--hidden-size is 100; it must be a multiple of 64"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["vllm-batch", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
