"""Completion: the words that the shell offers for partners, messages and states."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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


Partner = Annotated[
    str, typer.Argument(help="The partner's name or PartyId.", autocompletion=complete_partner)
]
"""The argument of commands that are about one partner."""

COMPLETED = 50
"""Messages, of those sent last and of those received last, that completion knows."""


def complete_message(context: typer.Context, incomplete: str) -> list[str]:
    """MessageIds of the latest messages for the shell's completion."""
    from oncewire.entry.party.settings import load
    from oncewire.entry.running.assemble import reading
    from oncewire.errors import OncewireError

    config = context.params.get("config")
    try:
        settings = load(Path(config) if config else None).settings
        with reading(settings) as reader:
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
