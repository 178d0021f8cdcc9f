"""What tests of worlds may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import Server
from tests.simulation.postgresql_worlds import Ground


@pytest.fixture(scope="session")
def ground(postgres: Server) -> Iterator[Ground]:
    """Schemas and connections that one world has after the other."""
    found = Ground(postgres)
    yield found
    found.close()
