from collections.abc import Iterator

import pytest
from batches import Batches
from served import served


@pytest.fixture(scope="session")
def service() -> Iterator[str]:
    """The address of a service with two workers."""
    with served("--worker", "w0", "--worker", "w1") as (address, _):
        yield address


@pytest.fixture(params=["embedded", "remote"])
def batches(request: pytest.FixtureRequest) -> Batches:
    return Batches(None if request.param == "embedded" else request.getfixturevalue("service"))
