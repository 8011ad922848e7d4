from collections.abc import Iterator

import pytest
from fake_batches import FakeBatches, fake_batches


@pytest.fixture
def fake() -> Iterator[FakeBatches]:
    with fake_batches() as fake:
        yield fake
