"""What a page asks of the store costs the same however many messages are kept."""

from collections.abc import Iterator

import pytest

from oncewire.store.sqlite.store import SqliteStore
from tests.entry.console.visits import QUESTIONS, is_bounded, large_store, steps_of

FEW, MANY = 10, 100
"""Of 2,000 messages in each direction: `python -m bench.console --steps` has 1,000,000."""


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, SqliteStore]]:
    """A store with more messages than any page looks at, and one of ten times its size."""
    folder = tmp_path_factory.mktemp("sizes")
    made = {times: large_store(folder / f"{times}.db", times) for times in (FEW, MANY)}
    yield made
    for store in made.values():
        store.close()


@pytest.mark.parametrize("page", QUESTIONS)
def test_a_page_visits_as_many_rows_in_a_large_store(
    sizes: dict[int, SqliteStore], page: str
) -> None:
    few, many = (steps_of(store, page, times) for times, store in sizes.items())
    assert is_bounded(few, many), (few, many)
