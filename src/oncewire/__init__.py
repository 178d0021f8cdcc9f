"""Oncewire: business documents that arrive once and only once, in order, or somebody is told.

This is the door for programs. A party is a folder that `oncewire init` made; its handler runs as
`oncewire serve`, or in this process for as long as the party is open.

Send a document, and learn what became of it:

    async with oncewire.open_party("acme") as party:
        sent = await party.send("globex", b"<order/>", media_type="application/xml")
        outcome = await party.wait(sent.message_id, timeout=30)

`send` returns when the document is stored: from then on it is delivered, or the sender is told.
A program that may repeat a call after a crash gives the id itself, and the document is sent once:

        await party.send("globex", document, options=oncewire.SendOptions(message_id="order-17"))

`outcome` equals one of `Outcome` (delivered, not_delivered, unknown, sent; compare with ==), or is
None while there is none. `SendOptions.time_to_live` counts microseconds.

Receive documents, each until it is confirmed:

        for message in await party.take():
            ...                                  # your work, with message.payloads[0].data
            await party.confirm(message)

Hear of documents that failed: `party.notices()` and `party.confirm_notice(notice)`.

Programs without an event loop use `open_party_blocking`, with the same verbs and no `await`.

What is wrong with an agreement, a partner's name, the store or the network is an `OncewireError`;
it says what the problem is and what to do next. Names that are not listed here are not for
programs, and may change with any version. Importing the package opens nothing and loads neither
Spark nor a database.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from oncewire.errors import (
    AgreementProblem,
    EbxmlError,
    HandlerFailed,
    InvalidValue,
    NotAllowed,
    OncewireError,
    StoreProblem,
    TransportProblem,
    UnknownMessage,
)

if TYPE_CHECKING:
    from oncewire.entry.control.verbs import Status
    from oncewire.entry.delivery.received_message import ReceivedMessage
    from oncewire.entry.messages.submitting import SendOptions
    from oncewire.entry.running.open_party import (
        BlockingParty,
        OpenParty,
        open_party,
        open_party_blocking,
    )
    from oncewire.handler.actions import Notice
    from oncewire.handler.sending.submit import Accepted, Submission
    from oncewire.journal.outcome import Outcome
    from oncewire.message.payload import Payload

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "AgreementProblem",
    "BlockingParty",
    "EbxmlError",
    "HandlerFailed",
    "InvalidValue",
    "NotAllowed",
    "Notice",
    "OncewireError",
    "OpenParty",
    "Outcome",
    "Payload",
    "ReceivedMessage",
    "SendOptions",
    "Status",
    "StoreProblem",
    "Submission",
    "TransportProblem",
    "UnknownMessage",
    "__version__",
    "open_party",
    "open_party_blocking",
]

# Where each name lives that is loaded only when it is asked for.
_ROOMS = {
    "Accepted": "oncewire.handler.sending.submit",
    "BlockingParty": "oncewire.entry.running.open_party",
    "Notice": "oncewire.handler.actions",
    "OpenParty": "oncewire.entry.running.open_party",
    "Outcome": "oncewire.journal.outcome",
    "Payload": "oncewire.message.payload",
    "ReceivedMessage": "oncewire.entry.delivery.received_message",
    "SendOptions": "oncewire.entry.messages.submitting",
    "Status": "oncewire.entry.control.verbs",
    "Submission": "oncewire.handler.sending.submit",
    "open_party": "oncewire.entry.running.open_party",
    "open_party_blocking": "oncewire.entry.running.open_party",
}

# A program that has not said where its log goes is not given lines it did not ask for.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(room), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
