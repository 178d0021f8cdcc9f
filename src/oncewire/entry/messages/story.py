"""The story of a message: why it is where it is in one sentence, and every step that it took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from oncewire.entry.messages.outlook import outlook, resolving
from oncewire.entry.party.names import Names
from oncewire.errors import OncewireError, UnknownMessage
from oncewire.journal.history import agreement_of, explain, ladder
from oncewire.journal.row import Row
from oncewire.message.instant import Instant
from oncewire.store.contract import Reader

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings


class StoryStep(Struct, frozen=True):
    """One step.

    `at`: when, in microseconds since 1970. `node`: at which handler.
    `direction`: `in`, `out` or `here`. `peer`: with whom. `what`: what it was.
    `kind`: the kind of journal row. `seq`: its position in the journal of that handler.
    `ref_to`: the MessageId of the signal that it is about, if it is about one.
    """

    at: Instant
    node: str
    direction: str
    peer: str
    what: str
    kind: str = ""
    seq: int = 0
    ref_to: str = ""


class Story(Struct, frozen=True):
    """What became of a message.

    `message_id`, `cpa_id`: its MessageId, and the agreement that it is under.
    `why`: why it is where it is, in one sentence.
    `steps`: every step that it took. `next`: commands that help it on.
    `elsewhere`: the handlers of `console.with` whose journals were read too.
    """

    message_id: str
    why: str
    cpa_id: str
    steps: tuple[StoryStep, ...]
    next: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def story_of(
    reader: Reader, names: Names, message_id: str, now: Instant, settings: Settings | None
) -> Story:
    """The story as our own store tells it; UnknownMessage where it has no row of it."""
    rows = reader.journal_of(message_id)
    if not rows:
        raise UnknownMessage(
            f"there is no message {message_id[:255]}",
            remedy="give its whole MessageId; `find` finds it by any 8 characters of it",
        )
    if settings is None:
        return tell(message_id, rows, names, "", resolving(reader, message_id, now, ""))
    others = [settings.path(Path(folder)) for folder in settings.console.with_]
    there = list(_elsewhere(message_id, others))
    then = outlook(reader, message_id, now, settings)
    told = [*rows, *(row for _, _, found in there for row in found)]
    story = tell(message_id, told, names, then, resolving(reader, message_id, now, ""))
    # A hub is no partner of ours, and its folder says what it is called.
    called = {party_id: name for name, party_id, _ in there}
    steps = tuple(replace(step, peer=called.get(step.peer, step.peer)) for step in story.steps)
    return replace(story, steps=steps, elsewhere=tuple(name for name, _, _ in there))


def _elsewhere(message_id: str, folders: Iterable[Path]) -> Iterator[tuple[str, str, list[Row]]]:
    """What the journals of other parties, whose folders are at hand, tell of a message, each with
    the name of its handler and its PartyId."""
    from oncewire.entry.party.settings import load
    from oncewire.store.sqlite.reader import SqliteReaders

    for folder in folders:
        # What is wrong with the files of others keeps nobody from our own story.
        with suppress(OncewireError):
            party = load(folder, environ={}).settings
            path = party.path(party.store.path)
            if path.is_file():
                with closing(SqliteReaders(path)) as readers, readers.reader() as reader:
                    rows = reader.journal_of(message_id)
                yield party.party.name, party.party.party_id, rows


def tell(
    message_id: str, rows: Sequence[Row], names: Names, then: str, steps: tuple[str, ...]
) -> Story:
    """The story that rows tell, of any journals; `then`: what has to happen before it goes on."""
    cpa_id = agreement_of(rows)
    return Story(
        message_id,
        explain(rows, outlook=then),
        cpa_id,
        tuple(
            StoryStep(
                step.at,
                step.node,
                step.direction.value,
                names(step.peer, cpa_id) if step.peer else "",
                step.text,
                step.kind,
                step.seq,
                step.ref_to or "",
            )
            for step in ladder(rows)
        ),
        steps,
    )
