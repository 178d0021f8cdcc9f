"""Oncewire: business documents that arrive once and only once, in order where that is agreed, or
the sender or the operator is told.

This is the door for programs. A party is a folder that `oncewire init` made; its handler runs as
`oncewire serve`, or in this process for as long as the party is open.

    async with oncewire.open_party("acme") as party:
        sent = await party.send("globex", b"<order/>", media_type="application/xml")
        outcome = await party.wait(sent.message_id, timeout=30)
        for message in await party.take():
            ...                                  # your work, with message.payloads[0].data
            await party.confirm(message)

Programs without an event loop use `open_party_blocking`, with the same verbs and no `await`. On
another machine, `oncewire.connect(url, token)` has the same verbs at the party's admin port.

    send(to, *documents)         store documents for a partner, to be sent as one message
    submit(submission)           the same for a Submission: message.response("Accept", b"<yes/>")
    wait(message_id, timeout)    how it ended: an Outcome; None while it is under way
    take(limit, timeout)         messages that wait for us, as ReceivedMessages
    messages()                   messages as they come: async for message in party.messages()
    confirm(message)             we have it: it is not handed out again
    notices(limit)               messages of ours that failed, as Notices
    confirm_notice(notice)       we know of it: it is not told again
    ask(message_id, timeout)     what its receiver says of it: a StatusResponse; None if nothing
    ping(partner, timeout)       whether a partner's handler is there; False when no Pong came
    try_partner(partner)         try out what works with a partner: a list of Tried
    find(text, partner=, ...)    messages by part of an id, a value, a partner: a MessagePage
    outbox(text, partner=, ...)  the same of what was sent
    inbox(text, partner=, ...)   the same of what arrived
    why(message_id)              why a message is where it is, and every step: a Story
    show(message_id)             all that is known of one message: MessageDetails
    incidents()                  what needs a decision, by partner and cause: a list of Troubles
    status()                     how the party is doing: a Status
    overview()                   what a watcher sees at one moment: an Overview
    channels()                   the windows of every channel, both ways: a list of ChannelViews
    readiness()                  whether its handler can take messages now: a Readiness
    figures()                    what is measured of it, as Prometheus reads it
    resend(message_id)           send it again, under the same id
    resume(message_id=, channel=)  the trouble is over: go on with it
    abandon(message_id, by=)     give it up; the journal keeps whose decision that was
    pause(channel)               send nothing on a channel until it is resumed
    restart(channel)             begin the numbering of a channel anew
    hold(message_id)             keep it for legal reasons; held=False lifts that
    accept_clock()               the machine's clock was set and is right
    trim_journal(until, through)  remove old rows of the journal that a lake has

`send` returns when the document is stored: from then on it is delivered, or the sender is told.
A program that may repeat a call after a crash gives the id itself, and the document is sent once:

    await party.send("globex", document, options=oncewire.SendOptions(message_id="order-17"))

What is wrong with an argument, an agreement, the store or the network is an `OncewireError`, which
says what the problem is and what to do next; `help(oncewire.errors)` draws their tree, and each of
them is here. `dir(oncewire)` lists all that is for programs, and `help(oncewire.OpenParty)` and the
like say more; other names may change with any version. Importing the package opens nothing and
loads neither Spark nor a database.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from oncewire.errors import AgreementProblem as AgreementProblem
from oncewire.errors import DeliveryFailure as DeliveryFailure
from oncewire.errors import EbxmlError as EbxmlError
from oncewire.errors import HandlerFailed as HandlerFailed
from oncewire.errors import Inconsistent as Inconsistent
from oncewire.errors import InvalidValue as InvalidValue
from oncewire.errors import JournalProblem as JournalProblem
from oncewire.errors import MimeProblem as MimeProblem
from oncewire.errors import NotAllowed as NotAllowed
from oncewire.errors import NotHere as NotHere
from oncewire.errors import NotSupported as NotSupported
from oncewire.errors import OncewireError as OncewireError
from oncewire.errors import OtherXml as OtherXml
from oncewire.errors import SecurityFailure as SecurityFailure
from oncewire.errors import SoapFault as SoapFault
from oncewire.errors import SpoolElsewhere as SpoolElsewhere
from oncewire.errors import StoreCorrupt as StoreCorrupt
from oncewire.errors import StoreDamaged as StoreDamaged
from oncewire.errors import StoreFull as StoreFull
from oncewire.errors import StoreGone as StoreGone
from oncewire.errors import StoreProblem as StoreProblem
from oncewire.errors import StoreReplaced as StoreReplaced
from oncewire.errors import TimeToLiveExpired as TimeToLiveExpired
from oncewire.errors import TransientError as TransientError
from oncewire.errors import TransportProblem as TransportProblem
from oncewire.errors import UnknownError as UnknownError
from oncewire.errors import UnknownMessage as UnknownMessage
from oncewire.errors import ValueNotRecognized as ValueNotRecognized
from oncewire.errors import __version__ as __version__

if TYPE_CHECKING:
    from oncewire.entry.admin.client import ConnectedParty as ConnectedParty
    from oncewire.entry.admin.client import connect as connect
    from oncewire.entry.control.verbs import Status as Status
    from oncewire.entry.delivery.received_message import ReceivedMessage as ReceivedMessage
    from oncewire.entry.messages.documents import Document as Document
    from oncewire.entry.messages.listing import ListedMessage as ListedMessage
    from oncewire.entry.messages.listing import MessagePage as MessagePage
    from oncewire.entry.messages.outlook import Trouble as Trouble
    from oncewire.entry.messages.story import DocumentFacts as DocumentFacts
    from oncewire.entry.messages.story import HopFacts as HopFacts
    from oncewire.entry.messages.story import MessageDetails as MessageDetails
    from oncewire.entry.messages.story import Story as Story
    from oncewire.entry.messages.story import StoryStep as StoryStep
    from oncewire.entry.messages.submitting import SendOptions as SendOptions
    from oncewire.entry.messages.timing import Timing as Timing
    from oncewire.entry.messages.timing import Usual as Usual
    from oncewire.entry.messages.timing import Wait as Wait
    from oncewire.entry.running.open_party import BlockingParty as BlockingParty
    from oncewire.entry.running.open_party import OpenParty as OpenParty
    from oncewire.entry.running.open_party import open_party as open_party
    from oncewire.entry.running.open_party import open_party_blocking as open_party_blocking
    from oncewire.entry.watching.snapshot import ChannelView as ChannelView
    from oncewire.entry.watching.snapshot import Overview as Overview
    from oncewire.entry.watching.snapshot import PartnerOverview as PartnerOverview
    from oncewire.entry.watching.snapshot import Readiness as Readiness
    from oncewire.entry.watching.snapshot import RefusedMessage as RefusedMessage
    from oncewire.entry.watching.snapshot import WindowCell as WindowCell
    from oncewire.handler.actions import Accepted as Accepted
    from oncewire.handler.actions import Notice as Notice
    from oncewire.handler.actions import Submission as Submission
    from oncewire.handler.runtime.trying import Tried as Tried
    from oncewire.message.envelope import MessageStatus as MessageStatus
    from oncewire.message.envelope import Payload as Payload
    from oncewire.message.envelope import Severity as Severity
    from oncewire.message.envelope import StatusResponse as StatusResponse
    from oncewire.message.ids import Service as Service
    from oncewire.protocol.states import Outcome as Outcome

# Where each name lives that is loaded only when it is asked for.
_ROOMS = {
    "Accepted": "oncewire.handler.actions",
    "BlockingParty": "oncewire.entry.running.open_party",
    "ChannelView": "oncewire.entry.watching.snapshot",
    "ConnectedParty": "oncewire.entry.admin.client",
    "Document": "oncewire.entry.messages.documents",
    "DocumentFacts": "oncewire.entry.messages.story",
    "HopFacts": "oncewire.entry.messages.story",
    "ListedMessage": "oncewire.entry.messages.listing",
    "MessageDetails": "oncewire.entry.messages.story",
    "MessagePage": "oncewire.entry.messages.listing",
    "MessageStatus": "oncewire.message.envelope",
    "Notice": "oncewire.handler.actions",
    "OpenParty": "oncewire.entry.running.open_party",
    "Outcome": "oncewire.protocol.states",
    "Overview": "oncewire.entry.watching.snapshot",
    "PartnerOverview": "oncewire.entry.watching.snapshot",
    "Payload": "oncewire.message.envelope",
    "Readiness": "oncewire.entry.watching.snapshot",
    "ReceivedMessage": "oncewire.entry.delivery.received_message",
    "RefusedMessage": "oncewire.entry.watching.snapshot",
    "SendOptions": "oncewire.entry.messages.submitting",
    "Service": "oncewire.message.ids",
    "Severity": "oncewire.message.envelope",
    "Status": "oncewire.entry.control.verbs",
    "StatusResponse": "oncewire.message.envelope",
    "Story": "oncewire.entry.messages.story",
    "StoryStep": "oncewire.entry.messages.story",
    "Submission": "oncewire.handler.actions",
    "Timing": "oncewire.entry.messages.timing",
    "Tried": "oncewire.handler.runtime.trying",
    "Trouble": "oncewire.entry.messages.outlook",
    "Usual": "oncewire.entry.messages.timing",
    "Wait": "oncewire.entry.messages.timing",
    "WindowCell": "oncewire.entry.watching.snapshot",
    "connect": "oncewire.entry.admin.client",
    "open_party": "oncewire.entry.running.open_party",
    "open_party_blocking": "oncewire.entry.running.open_party",
}

# There is no `__all__`, on purpose: with one, `help` prints every method that a class or an error
# has from Python itself, two thousand lines below the page above. `dir` says what is public.

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
    errors = {name for name, value in globals().items() if isinstance(value, type)}
    return sorted({*errors, *_ROOMS, "__version__"})
