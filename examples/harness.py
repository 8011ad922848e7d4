"""A harness of about 40 lines, for one process or many: python examples/harness.py [HOST:PORT of a service].

Each task takes three model calls with a tool between them; both are sleeps here.
"""

import asyncio
import random
import sys

import coresched

SERVICE = sys.argv[1] if len(sys.argv) > 1 else None
TASKS = [f"task-{n}" for n in range(20)]
LIMITS = {"sample_concurrency": 8, "environment_concurrency": 2}


async def run_task(sample):
    async with sample:  # holds its sample slot until the block ends
        for turn_number in range(3):
            async with sample.inference() as turn:  # send the request with turn.headers, to turn.worker
                await asyncio.sleep(random.uniform(0.01, 0.03))
            if turn_number < 2:
                async with sample.environment():  # waits for an environment slot
                    await asyncio.sleep(0.01)
    print("done:", turn.label, flush=True)


async def main():
    # One process: coresched.Batch. Many processes that share the tasks and the limits: coresched.connect.
    if SERVICE is None:
        batch = coresched.Batch(**LIMITS)
    else:
        batch = coresched.connect(SERVICE, batch="example", **LIMITS)
    async with batch:
        await batch.submit(TASKS)
        running = [asyncio.create_task(run_task(sample)) async for sample in batch.admissions()]
        await asyncio.gather(*running)
    print(batch.report().totals)


try:
    asyncio.run(main())
except (
    coresched.ServiceError,
    ValueError,
) as error:  # no service there, or it has the batch with other limits
    sys.exit(f"harness: {error}")
