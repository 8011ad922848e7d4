"""sglang-router's consistent hashing is no ring that keys could be minted for, and it is refused."""

import httpx
import pytest
from coresched_smg import SmgRouter
from coresched_smg.ring import position
from smg_processes import listed, until

from bench.gateways import exchange
from bench.gateways.processes import fake_workers, free_port, started
from bench.peers.environments import SGLANG_ROUTER, program
from bench.peers.gateways import sglang_router
from coresched.errors import InputError


@pytest.mark.smg
def test_a_key_goes_by_its_hash_modulo_the_number_of_workers() -> None:
    python = program(SGLANG_ROUTER, "python", install=True)
    assert python is not None
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with fake_workers(3) as ports:
        urls = [f"http://127.0.0.1:{number}" for number in ports]
        with started(sglang_router(python).command(port, free_port(), urls)) as router:
            until(lambda: router.has_ended() or len(listed(url)) == 3, "sglang-router is not ready")
            with pytest.raises(InputError, match=r"without x-smg-routed-worker-id: .*sglang-router tells no"):
                SmgRouter(url)
            met: dict[int, set[str]] = {0: set(), 1: set(), 2: set()}
            with httpx.Client() as client:
                for number in range(100):
                    headers = {"x-smg-routing-key": f"key-{number}", "content-type": "application/json"}
                    answer = client.post(f"{url}{exchange.CHAT}", content=exchange.body(), headers=headers)
                    met[position(f"key-{number}") % 3].add(answer.headers[exchange.WORKER_HEADER])
    assert sorted(map(sorted, met.values())) == [["0"], ["1"], ["2"]]
