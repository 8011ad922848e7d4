"""A turn that is refused changes nothing."""

import pytest

from coresched import Batch, TransitionError


async def test_a_turn_out_of_order_is_not_in_flight() -> None:
    async with Batch(sample_concurrency=1, workers=["w0"]) as batch, batch.sample("s") as sample:
        async with sample.inference():
            with pytest.raises(TransitionError):
                async with sample.inference():
                    pass
            assert batch._local._router is not None
            assert batch._local._router.loads() == {"w0": 1}
        assert batch._local._router.loads() == {"w0": 0}


async def test_without_workers_there_is_none_to_leave_out() -> None:
    async with Batch(sample_concurrency=1) as batch, batch.sample("s") as sample:
        with pytest.raises(LookupError, match="exclude must name workers of the batch, which has none"):
            async with sample.inference(exclude=["w0"]):
                pass
        async with sample.inference() as turn:
            assert turn.worker is None
