"""What listings of messages share: times, partners' names, and finding a message by its id."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from oncewire.entry.cli.output import typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncewire.entry.party.settings import Settings
    from oncewire.message.instant import Instant
    from oncewire.protocol.states import IncomingState, OutgoingState
    from oncewire.store.contract import Reader
    from oncewire.store.records import StoredIncoming, StoredOutgoing

LOOKED_AT = 20_000
"""How many of the newest messages are searched for a part of an id."""

PAGE = 500
"""How many messages are looked at for those that are whole."""


def moment(instant: Instant | None) -> str:
    """An instant to the millisecond, in UTC; always as long, so that columns line up."""
    from oncewire.message.instant import MILLISECOND, SECOND, format_instant

    if instant is None:
        return ""
    whole = format_instant(instant // SECOND * SECOND).removesuffix("Z")
    return f"{whole}.{instant % SECOND // MILLISECOND:03}Z"


def at_party(settings: Settings) -> str:
    """What to add to a command so that it finds this party from here."""
    here_already = Path.cwd() == settings.folder
    return "" if here_already else f" -c {typed(settings.folder)}"


def complete_partner(context: typer.Context, incomplete: str) -> list[str]:
    """Names of partners for the shell's completion; silent where there is no party."""
    from oncewire.entry.party.agreements import files_in
    from oncewire.entry.party.settings import load
    from oncewire.errors import OncewireError

    config = context.params.get("config")
    try:
        settings = load(Path(config) if config else None).settings
        files = files_in(settings.path(settings.agreements.folder))
    except OncewireError:
        return []
    return [file.stem for file in files if file.stem.startswith(incomplete)]


def complete_outgoing(incomplete: str) -> list[str]:
    """States of messages that were sent."""
    from oncewire.protocol.states import OutgoingState

    return [state.value for state in OutgoingState if state.value.startswith(incomplete)]


def complete_incoming(incomplete: str) -> list[str]:
    """States of messages that arrived."""
    from oncewire.protocol.states import IncomingState

    return [state.value for state in IncomingState if state.value.startswith(incomplete)]


class Names:
    """Ourselves and partners by the names of their files; anyone else by PartyId."""

    def __init__(self, settings: Settings) -> None:
        from oncewire.entry.party.agreements import load_all
        from oncewire.errors import OncewireError

        self._names: dict[str, str] = {}
        # With one partner there may be several agreements, each a file of its own.
        self._under: dict[tuple[str, str], str] = {}
        if settings.party.name:
            self._names[settings.party.party_id] = settings.party.name
        try:
            kept = load_all(settings)
        except OncewireError:
            # A listing must work even if an agreement is broken at the moment.
            return
        for known in kept:
            for party_id in known.agreement.partner.party.ids:
                for name in (str(party_id), party_id.value):
                    self._names.setdefault(name, known.file.stem)
                    self._under[name, known.agreement.cpa_id] = known.file.stem

    def __call__(self, party: str, cpa_id: str = "") -> str:
        """How a party is called in what was sent or received under that agreement."""
        return self._under.get((party, cpa_id)) or self._names.get(party, party)


def has_store(settings: Settings) -> bool:
    """Whether the party ever sent or received anything, as far as its folder knows."""
    from oncewire.entry.running.store_record import read_record

    return read_record(settings) is not None or settings.path(settings.store.path).is_file()


def newest_sent(
    reader: Reader, states: Sequence[OutgoingState], limit: int, *, parts: bool
) -> list[StoredOutgoing]:
    """What was sent, newest first; a document stands for its parts, unless they are wanted too."""
    from oncewire.handler.documents.original import is_part

    found: list[StoredOutgoing] = []
    before = None
    while len(found) < limit:
        page = reader.outgoing_list(states=states, limit=max(limit, PAGE), before=before)
        found += [one for one in page if parts or not is_part(one)]
        if len(page) < max(limit, PAGE):
            break
        before = page[-1].position
    return found[:limit]


def newest_received(
    reader: Reader, states: Sequence[IncomingState], limit: int, *, parts: bool
) -> list[StoredIncoming]:
    """What arrived, newest first; parts only where they are wanted."""
    found: list[StoredIncoming] = []
    before = None
    while len(found) < limit:
        page = reader.incoming_list(states=states, limit=max(limit, PAGE), before=before)
        found += [one for one in page if parts or not one.stands_behind]
        if len(page) < max(limit, PAGE):
            break
        before = page[-1].row
    return found[:limit]


def find_channel(reader: Reader, wanted: str) -> str:
    """The channel that is meant: itself, or the only one that contains the text."""
    from oncewire.errors import InvalidValue, NotHere

    sending, receiving = reader.channels()
    # A damaged channel, and the handler's own, are named by their incidents.
    named = [incident.channel for incident in reader.incidents() if incident.channel is not None]
    keys = list(
        dict.fromkeys(
            [channel.key for channel in sending] + [channel.key for channel in receiving] + named
        )
    )
    if wanted in keys:
        return wanted
    found = [key for key in keys if wanted in key]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidValue(
            f"{len(found)} channels have {wanted!r} in their name",
            remedy="give more of it: " + ", ".join(found[:5]),
        )
    raise NotHere(
        f"there is no channel {wanted}",
        remedy="`oncewire status` lists them; an agreement without order has none",
    )


def find_id(reader: Reader, wanted: str) -> str:
    """The MessageId that is meant: itself, or the only recent one that contains the text."""
    from oncewire.errors import InvalidValue, UnknownMessage

    if reader.journal_of(wanted):
        return wanted
    received = reader.incoming_list(limit=LOOKED_AT)
    parts = [stored.facts for stored in received if stored.facts.split_id == wanted]
    if parts:
        # How many there will be is not known of every kind of part.
        there = f"{len(parts)} of {parts[0].split_total or 'its'} parts are"
        raise UnknownMessage(
            f"document {wanted} is not whole here: {there}",
            remedy="`oncewire inbox --parts` lists them; its sender's handler sends the others",
        )
    # What was refused is in the journal alone.
    found = (
        dict.fromkeys(reader.refused_ids(wanted, LOOKED_AT), False)
        | {
            stored.outgoing.message_id: stored.facts.split_number is not None
            for stored in reader.outgoing_list(limit=LOOKED_AT)
            if wanted in stored.outgoing.message_id
        }
        | {
            stored.incoming.message_id: stored.facts.split_number is not None
            for stored in received
            if wanted in stored.incoming.message_id
        }
    )
    # The id of a document is in those of its parts, and then it is meant, not they.
    ids = [name for name, is_part in found.items() if not is_part] or list(found)
    if len(ids) == 1:
        return ids[0]
    if ids:
        some = ", ".join(ids[:5])
        raise InvalidValue(
            f"{len(ids)} messages have {wanted!r} in their id",
            remedy=f"give more of it: {some}{', ...' if len(ids) > 5 else ''}",
        )
    raise UnknownMessage(
        f"there is no message {wanted}",
        remedy="`oncewire outbox` and `oncewire inbox` list them, with `--parts` parts too; one "
        f"that is not among the newest {LOOKED_AT:,} is found by its whole id",
    )
