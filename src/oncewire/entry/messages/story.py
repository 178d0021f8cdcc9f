"""The story of a message: why it is where it is in one sentence, and every step that it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from oncewire.entry.messages.outlook import outlook, resolving
from oncewire.entry.party.names import Names
from oncewire.errors import UnknownMessage
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
    """

    at: Instant
    node: str
    direction: str
    peer: str
    what: str


class Story(Struct, frozen=True):
    """What became of a message.

    `message_id`, `cpa_id`: its MessageId, and the agreement that it is under.
    `why`: why it is where it is, in one sentence.
    `steps`: every step that it took. `next`: commands that help it on.
    """

    message_id: str
    why: str
    cpa_id: str
    steps: tuple[StoryStep, ...]
    next: tuple[str, ...] = ()


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
    then = "" if settings is None else outlook(reader, message_id, now, settings)
    return tell(message_id, rows, names, then, resolving(reader, message_id, now, ""))


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
            )
            for step in ladder(rows)
        ),
        steps,
    )
