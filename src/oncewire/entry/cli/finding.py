"""Finding what is meant: the words that the shell completes, and messages and channels by parts of
their names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncewire.errors import InvalidValue, NotHere, OncewireError, UnknownMessage
from oncewire.message.ids import check_text

if TYPE_CHECKING:
    from oncewire.entry.party.settings import Settings
    from oncewire.store.contract import Reader


def _settings(context: typer.Context) -> Settings:
    """The settings of the party that an unfinished command is about."""
    from oncewire.entry.party.settings import load

    config = context.params.get("config")
    return load(Path(config) if config else None).settings


def complete_partner(context: typer.Context, incomplete: str) -> list[str]:
    """Names of partners for the shell's completion; silent where there is no party."""
    from oncewire.entry.party.agreements import files_in

    try:
        settings = _settings(context)
        files = files_in(settings.path(settings.agreements.folder))
    except OncewireError:
        return []
    return [file.stem for file in files if file.stem.startswith(incomplete)]


Partner = Annotated[
    str, typer.Argument(help="The partner's name or PartyId.", autocompletion=complete_partner)
]
"""The argument of commands that are about one partner."""

COMPLETED = 50
"""Messages, of those sent last and of those received last, that completion knows."""


def complete_message(context: typer.Context, incomplete: str) -> list[str]:
    """MessageIds of the latest messages for the shell's completion."""
    from oncewire.entry.party.store import reading

    try:
        with reading(_settings(context)) as reader:
            sent = [each.outgoing.message_id for each in reader.outgoing_list(limit=COMPLETED)]
            came = [each.incoming.message_id for each in reader.incoming_list(limit=COMPLETED)]
    except OncewireError:
        return []
    return [each for each in dict.fromkeys((*sent, *came)) if each.startswith(incomplete)]


def complete_outgoing(incomplete: str) -> list[str]:
    """States of messages that were sent."""
    from oncewire.protocol.states import OutgoingState
    from oncewire.store.search import TAKEN_OVER

    words = [*(state.value for state in OutgoingState), TAKEN_OVER]
    return [word for word in words if word.startswith(incomplete)]


def complete_incoming(incomplete: str) -> list[str]:
    """States of messages that arrived."""
    from oncewire.protocol.states import IncomingState

    return [state.value for state in IncomingState if state.value.startswith(incomplete)]


LOOKED_AT = 20_000
"""How many of the newest messages are searched for a part of an id."""


def find_channel(reader: Reader, wanted: str) -> str:
    """The channel that is meant: itself, or the only one that contains the text."""
    # A damaged channel, and the handler's own, are named by their incidents.
    named = [incident.channel for incident in reader.incidents() if incident.channel is not None]
    listed = [channel.key for channels in reader.channels() for channel in channels]
    keys = list(dict.fromkeys((*listed, *named)))
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
    if not check_text(wanted, "message_id"):
        raise InvalidValue("the MessageId is empty", remedy="give an id, or a part of one")
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
    found = dict.fromkeys(reader.refused_ids(wanted, LOOKED_AT), False)
    for sent in reader.outgoing_list(limit=LOOKED_AT):
        found[sent.outgoing.message_id] = sent.facts.split_number is not None
    for arrived in received:
        found[arrived.incoming.message_id] = arrived.facts.split_number is not None
    found = {name: is_part for name, is_part in found.items() if wanted in name}
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
