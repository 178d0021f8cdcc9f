"""What a page asks of the store costs the same however many messages are kept."""

from collections.abc import Callable, Iterator
from typing import Any

import apsw
import pytest

from oncewire.entry.messages.details import details_of
from oncewire.entry.messages.listing import Asked, list_messages
from oncewire.entry.messages.story import tell
from oncewire.entry.party.names import Names
from oncewire.entry.watching.channels import channels_of
from oncewire.journal.row import Row
from oncewire.protocol.notes import Kind
from oncewire.store.contract import Reader
from oncewire.store.sqlite.store import SqliteStore
from tests.store.test_search import _many

NOW = 2_000_000_000_000_000
NOBODY = Names()

QUESTIONS: dict[str, Callable[[Reader, str], object]] = {
    "now": lambda reader, _: (reader.oldest_unsettled(500), reader.incidents(), reader.last_seq()),
    "pulse": lambda reader, _: reader.journal_since(max(0, reader.last_seq() - 500), 500),
    "messages": lambda reader, _: list_messages(reader, NOBODY, Asked(), ("out", "in"), NOW),
    "search": lambda reader, wanted: list_messages(
        reader, NOBODY, Asked(text=wanted[3:14]), ("out", "in"), NOW
    ),
    "message": lambda reader, wanted: (
        details_of(reader, wanted, NOW, None),
        tell(wanted, reader.journal_of(wanted), NOBODY, "", ()),
    ),
    "channels": lambda reader, _: channels_of(reader, 50),
}


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, SqliteStore]]:
    """A store with more messages than any page looks at, and one of ten times its size; each
    message has its row in the journal."""
    folder = tmp_path_factory.mktemp("sizes")
    made = {count: _many(folder / f"{count}.db", count) for count in (2_000, 20_000)}
    for store in made.values():
        with store.reader() as reader:
            kept = reader.outgoing_list(limit=100_000)
        with store.transition() as tx:
            tx.journal(
                Row(0, each.outgoing.submitted_at, 0, "boot", "node", Kind.SUBMITTED.value,
                    message_id=each.outgoing.message_id, terms_id=each.outgoing.terms_id,
                    peer="globex", digest="d", size=1, detail="{}")
                for each in reversed(kept)
            )  # fmt: skip
        store.commit()
    yield made
    for store in made.values():
        store.close()


@pytest.mark.parametrize("page", QUESTIONS)
def test_a_page_visits_as_many_rows_in_a_large_store(
    sizes: dict[int, SqliteStore], page: str
) -> None:
    steps = {}
    for count, store in sizes.items():
        taken: list[int] = []

        def counted(event: dict[str, Any], taken: list[int] = taken) -> None:
            taken.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

        with store.reader() as reader:
            (last,) = reader.outgoing_list(limit=1, before=count // 2)
            connection = reader._run.args[0]  # type: ignore[attr-defined]
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, counted)
            QUESTIONS[page](reader, last.outgoing.message_id)
            connection.trace_v2(0, None)
        steps[count] = sum(taken)
    few, many = steps.values()
    assert 0 < many < 1.5 * few + 2_000, steps
