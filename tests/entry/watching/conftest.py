"""What tests of watching share."""

from collections.abc import Iterator

import pytest

from tests.entry.watching.watched import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.hangs.set()
    found.server.shutdown()
    found.server.server_close()
