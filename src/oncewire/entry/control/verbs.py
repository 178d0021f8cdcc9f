"""The table of verbs: what people and programs may ask of a party, each defined here and nowhere
else. `verb` says what is made from a definition.

A body says what is done by the one who has the store open (`here`): `client.LocalHandler` or
`client.OfflineStore`. Other faces only pass a call on: `client.Remote` to the handler that runs
elsewhere, the Python API of `entry/running/open_party.py` to whichever it found.

This module is read at every start of the command line, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import structs

from oncewire.entry.control.verb import (
    Command,
    Need,
    NoCommand,
    Performing,
    Permission,
    Told,
    Verb,
    Within,
    verb,
    verbs_of,
)
from oncewire.errors import HandlerFailed, NotAllowed, NotHere, TransportProblem
from oncewire.message.instant import Duration, Instant, format_instant

if TYPE_CHECKING:
    from oncewire.entry.delivery.received_message import ReceivedMessage
    from oncewire.entry.messages.listing import MessagePage
    from oncewire.entry.messages.outlook import Trouble
    from oncewire.entry.messages.story import MessageDetails, Story
    from oncewire.entry.party.names import Names
    from oncewire.entry.party.settings import Settings
    from oncewire.entry.watching.snapshot import ChannelView, Overview, Readiness
    from oncewire.handler.actions import Accepted, Notice, Submission
    from oncewire.handler.delivering.deliver import GivenMessage
    from oncewire.handler.runtime.engine import Engine
    from oncewire.handler.runtime.handler import Handler
    from oncewire.handler.runtime.trying import Tried
    from oncewire.message.envelope import StatusResponse
    from oncewire.protocol.states import Outcome
    from oncewire.store.contract import Reader
    from oncewire.store.records import StoredIncoming, StoredOutgoing

T = TypeVar("T")

LEASES_EVERY = 5.0
"""Seconds after which it is looked whether a message is to be handed out again, its lease over."""

NAME_MAX = 200
"""Characters of a person's name that the journal keeps."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an argument means, which is the same in every verb that has it; in the words of the
    command line, which finds ids and channels by parts of them."""

    help: str
    # The least and the most that the control socket lets through; what is beyond is cut.
    least: float | None = None
    most: float | None = None


MEANINGS = {
    "message_id": Meaning("MessageIds, or unique parts of them."),
    "partner": Meaning("The partner's name, its PartyId, or the CPAId of the agreement with it."),
    "text": Meaning(
        "The beginning of a MessageId or any 8 characters of it, a ConversationId, a file's name, "
        "or a value in a document."
    ),
    "conversation": Meaning("Only of this ConversationId."),
    "service": Meaning("Only of this Service."),
    "action": Meaning("Only of this Action."),
    "state": Meaning("Only in these states, several between commas: unknown,not_delivered."),
    "since": Meaning("Not before: 2026-01-05, 2026-01-05T10:00:00Z, or how long ago, 24h."),
    "until": Meaning("Before: a time like that of since."),
    "file": Meaning("Only with a file of this name."),
    "value": Meaning("Only with this value in a document, where payload.index names it."),
    "parts": Meaning("Parts of documents, too."),
    "again": Meaning("Only what was sent more than once, or came more than once."),
    "slow": Meaning("Only what took, or waits, longer than is usual for its partner."),
    "slowest": Meaning("The slowest of the newest 500 first."),
    "tally": Meaning("How many there are in each state, too."),
    "after": Meaning("Go on behind the page that had this as its `after`."),
    "resolved": Meaning("Those that are resolved, too."),
    "channel": Meaning("A channel as `oncewire status` names it, or part of it."),
    "reason": Meaning("Why, for whoever looks later."),
    "timeout": Meaning("Wait no longer than so many seconds.", 0, 3600),
    "limit": Meaning("At most so many.", 1, 1000),
    "through": Meaning("The position of the last row that may go.", 0, 2**63 - 1),
    "held": Meaning("Whether it is kept."),
    "submission": Meaning("The document and whom it is for."),
    "direction": Meaning("Of two messages of one id: out, what we sent, or in, what arrived."),
    "sender": Meaning("The authenticated From Party of a message that arrived."),
    "by": Meaning("Whose decision it is; without it, your user name in the operating system."),
    "notice_id": Meaning("Notices as `oncewire notices` names them, or parts."),
}


@dataclass(frozen=True, slots=True)
class Status:
    """How a party is doing.

    `party`: its name.
    `running`: whether a handler runs; without one nothing is sent or received.
    `pid`, `url`: the handler's process, and the address where partners reach it.
    `counts`: messages in each state: `out.delivered`, `in.confirmed` and so on.
    `incidents`: how many things wait for an operator's decision.
    `passing`: the handler runs only until the program or command that started it is done.
    `lag_ms`: the longest that anything waited for its turn in the last minute, in milliseconds.
    `stuck`: why it is not called running although its process is there.
    `transfers`: large messages that leave now, by MessageId: bytes that have left, and of how many.
    `refusals`: messages that the application refuses, by MessageId: how often, when last (in
    microseconds since 1970), and what it raised then.
    `admin`: why the admin port does not come up; empty: it does, or there is none.
    `outage`: since when the store cannot keep anything, not even its own incident, and why.
    """

    party: str
    running: bool
    pid: int
    url: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    incidents: int = 0
    passing: bool = False
    lag_ms: int = 0
    stuck: str = ""
    transfers: dict[str, tuple[int, int]] = field(default_factory=dict)
    refusals: dict[str, tuple[int, Instant, str]] = field(default_factory=dict)
    admin: str = ""
    outage: tuple[Instant, str] | None = None


def told_of(said: StatusResponse | None, sent: StoredOutgoing | None) -> Told:
    """What a receiver said of a message, for people."""
    if said is None:
        return Told(
            {"answer": "", "received": ""},
            "No answer came in time, so nothing new is known. Ask again, or with more --timeout.",
            good=False,
        )
    from oncewire.message.envelope import MessageStatus
    from oncewire.protocol.sender import is_id_taken

    words = {
        MessageStatus.PROCESSED: "The receiver has it, and its application confirmed it.",
        MessageStatus.RECEIVED: "The receiver has it; its application has not confirmed it yet.",
        MessageStatus.FORWARDED: "The handler we sent it to has it, and sends it on.",
        MessageStatus.NOT_RECOGNIZED: "The receiver does not know this message: it did not arrive "
        "there, was refused, or is forgotten. If it acknowledged it once, it has lost it since, as "
        "when an older backup was restored there, or has cleared it away: ask its people, and send "
        "the document as a new message if they miss it.",
        MessageStatus.UNAUTHORIZED: "The receiver does not tell us what became of this message.",
    }
    unknown = (MessageStatus.NOT_RECOGNIZED, MessageStatus.UNAUTHORIZED)
    received = "" if said.timestamp is None else format_instant(said.timestamp)
    facts: dict[str, Any] = {"answer": said.status, "received": received}
    if sent is not None and said.status not in unknown and is_id_taken(sent.outgoing.reason):
        return Told(facts, f"{_OF_ANOTHER} {words[said.status]}", good=False)
    return Told(facts, words[said.status], good=said.status not in unknown)


def asked_before(arrived: StoredIncoming) -> str:
    """What a person is asked before a message that arrived is given up. Of a sent one the
    application is told that it failed, so nothing is asked."""
    incoming = arrived.incoming
    return (
        f"{incoming.message_id} arrived from {incoming.sender}, and the application has not "
        "confirmed it. Given up, it is handed to nobody, ever; its sender takes it for delivered, "
        "and `oncewire verify` counts it as lost by your decision."
    )


def user_name() -> str:
    """The user that this process runs as, by the operating system's word."""
    import os
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _cut(by: str | None) -> str | None:
    return by and by[:NAME_MAX]


_OF_ANOTHER = (
    "It refused this message, for it has an earlier one of this id with other content, and its "
    "answer is about that one. Made once more, the same document is other content too. If it is "
    "another document, send it under a new id. Of the earlier one:"
)


class VerbBackend(Protocol):
    """The one who has the store of the party open in this process."""

    @property
    def handler(self) -> Handler:
        """The handler that runs; NotAllowed at rest."""

    @property
    def lease(self) -> Duration:
        """How long the taker of a message may take to confirm it."""

    async def submit(self, submission: Submission) -> Accepted:
        """Store a document to be sent; returns when it is durable, or raises why it is not."""

    async def operate(self, decide: Callable[[Engine], T], step: str = "operate") -> T:
        """Run a verb of the engine; returns when it is durable, or raises why it is not."""

    async def taken(
        self, take: Callable[[Engine, int], list[GivenMessage]], limit: int
    ) -> list[GivenMessage]:
        """What is handed over, so many at most; returns when that is durable."""

    @property
    def arrivals(self) -> int:
        """How often messages became ready to be taken, so far."""

    async def arrival(self, seen: int, timeout: float) -> bool:
        """Wait until `arrivals` is another number than was seen; False where nothing can arrive."""

    async def look(self, see: Callable[[Reader, Names, Instant], T]) -> T:
        """What is seen of the store, with the names of partners and by this moment's clock."""

    @property
    def settings(self) -> Settings | None:
        """The party's settings, if it has any."""

    def names(self) -> Names:
        """The names of partners, as the party's files have them now."""

    def agreed_with(self, partner: str) -> str:
        """The CPAId of the agreement with a partner, by its name, PartyId or CPAId."""

    async def outcome(self, message_id: str, timeout: float) -> Outcome | None:
        """The outcome of a message, waited for where something can still happen."""

    async def condition(self) -> Status:
        """How the party is doing."""

    async def read_anew(self) -> int:
        """Read the files of the party; returns how many agreements there are."""


def _listing(name: str, directions: tuple[str, ...], said: str) -> Verb[..., MessagePage]:
    """A verb that lists messages: all of them narrow in the same words."""

    async def listed(
        self: Any,
        text: str | None = None,
        *,
        partner: str | None = None,
        conversation: str | None = None,
        service: str | None = None,
        action: str | None = None,
        state: str | None = None,
        since: str | None = None,
        until: str | None = None,
        file: str | None = None,
        value: str | None = None,
        parts: bool = False,
        again: bool = False,
        slow: bool = False,
        slowest: bool = False,
        tally: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> MessagePage:
        given = {name: value for name, value in locals().items() if value is not None}
        from oncewire.entry.messages.listing import Asked, counted_page

        asked = Asked(**{name: given[name] for name in Asked.__struct_fields__ if name in given})
        page: MessagePage = await self.here.look(
            lambda reader, names, now: counted_page(
                reader, names, asked, directions, now, limit, after or "", counted=tally
            )
        )
        return page

    listed.__name__ = name
    listed.__qualname__ = f"PartyVerbs.{name}"
    listed.__doc__ = f"""{said}

        All that is given has to hold. A page has at most `limit` messages; `after` of it, given to
        the next call, goes on from there, and is empty where that was all.
        """
    return verb(Need.STORE, Permission.LOOK, Within(name))(listed)


class PartyVerbs:
    """Verbs that everybody has in the same words: commands, programs, the control socket."""

    here: VerbBackend

    @verb(Need.STORE, Permission.LOOK, Within("send"))
    async def wait(self, message_id: str, timeout: float = 60.0) -> Outcome | None:
        """Wait until a message of ours has its outcome, no longer than so many seconds.

        There is none to tell while the message is under way. Without a handler nothing happens,
        so only what is final is told, at once.
        """
        return await self.here.outcome(message_id, timeout)

    @verb(Need.STORE, Permission.TAKE, Within("inbox take"))
    async def take(
        self, limit: int = 16, timeout: float = 0.0, by: str | None = None
    ) -> list[ReceivedMessage]:
        """Messages that wait for us; each is to be confirmed before its lease ends, a minute.

        Where there are none, one that comes is waited for, no longer than so many seconds; without
        a handler none comes. Large ones come in fewer at a time: as many as an answer of the
        control socket carries.
        """
        from time import monotonic

        from oncewire.entry.control.language import AnswerRoom
        from oncewire.entry.delivery.received_message import message_of

        lease, until = self.here.lease, monotonic() + timeout
        while True:
            seen, room = self.here.arrivals, AnswerRoom()

            def hand_over(
                engine: Engine, count: int, room: AnswerRoom = room
            ) -> list[GivenMessage]:
                return engine.hand_over(count, lease, room, by=_cut(by))

            given = await self.here.taken(hand_over, limit)
            left = until - monotonic()
            if given or left <= 0 or not await self.here.arrival(seen, min(left, LEASES_EVERY)):
                return [message_of(taken) for taken in given]

    @verb(Need.STORE, Permission.TAKE, Within("notices take"))
    async def notices(self, limit: int = 16) -> list[Notice]:
        """Messages of ours that failed; each is told again until it is confirmed."""
        return await self.here.operate(lambda engine: engine.notices(limit), "look")

    @verb(Need.HANDLER, Permission.OPERATE, Command("ask", tell=told_of))
    async def ask(
        self, message_id: str, timeout: float = 30.0, partner: str | None = None
    ) -> StatusResponse | None:
        """Ask the receiver of a message what became of it, and wait for what it says.

        A message that is unknown here, as after an older backup was restored, is asked for by its
        whole id, and the partner is named; then the answer settles nothing.

        When nothing comes in time, nothing new is known. An answer that the receiver has it settles
        a message whose fate was unknown. One that it knows no such message settles nothing, for a
        copy may still be on its way. Not every dialect has the question: under rm-0.78 it is an
        error.
        """
        cpa_id = None if partner is None else self.here.agreed_with(partner)
        return await self.here.handler.ask_status(message_id, timeout, cpa_id)

    @verb(Need.HANDLER, Permission.OPERATE, Within("ping"))
    async def ping(self, partner: str, timeout: float = 10.0) -> bool:
        """Ask a partner's handler whether it is there; False when no Pong came in time.

        The Pong may come on the connection of the question, or on one of its own.
        """
        try:
            return await self.here.handler.ping(self.here.agreed_with(partner), timeout)
        except TransportProblem:
            return False

    @verb(Need.HANDLER, Permission.OPERATE, Within("partner test"))
    async def try_partner(self, partner: str, timeout: float = 60.0) -> list[Tried]:
        """Try out what a partner's handler makes of messages, copies, losses and signatures.

        What is sent has a service of its own: it reaches no application, and no count.
        """
        from oncewire.handler.runtime.trying import Trying

        cpa_id = self.here.agreed_with(partner)
        return await Trying(self.here.handler, cpa_id, timeout).run()

    @verb(Need.STORE, Permission.OPERATE, Command("resume", "resumed", later=True))
    async def resume(
        self,
        *,
        message_id: str | None = None,
        channel: str | None = None,
        partner: str | None = None,
        by: str | None = None,
    ) -> None:
        """The trouble is over: go on with a message, a channel or all that goes to a partner.

        Retries start anew, and what waits for its next attempt is sent at once. A channel that
        a person paused goes on when the channel, or a message in it, is named.
        """
        if sum(named is not None for named in (message_id, channel, partner)) != 1:
            raise NotAllowed(
                "it is not said what to resume",
                remedy="name one message, one channel or one partner",
            )
        try:
            whose = partner and self.here.agreed_with(partner)
        except NotHere:
            # Not a partner, but perhaps a handler on the way to one, by its label.
            whose = partner
        await self.here.operate(
            lambda engine: engine.resume(
                message_id=message_id, channel=channel, partner=whose, by=_cut(by)
            )
        )

    @verb(Need.STORE, Permission.OPERATE, Within("resend"))
    async def resend(self, message_id: str, by: str | None = None) -> None:
        """Send a message again: the same bytes under the same MessageId, so nothing can be doubled.

        It is for messages that were not delivered or whose fate is unknown, and only within
        persistDuration, because the partner remembers ids that long.
        """
        await self.here.operate(lambda engine: engine.resume(message_id=message_id, by=_cut(by)))

    @verb(Need.STORE, Permission.OPERATE, Command("pause", "paused", later=True))
    async def pause(
        self, channel: str, reason: str = "paused by hand", by: str | None = None
    ) -> None:
        """Stop sending on a channel until it is resumed; arrivals are not affected."""
        # It stands in sentences, which have one line.
        why = " ".join(reason.split())[:NAME_MAX] or "paused by hand"
        await self.here.operate(lambda engine: engine.pause(channel, why, _cut(by)))

    @verb(Need.STORE, Permission.OPERATE, Command("restart", "restarted"))
    async def restart(self, channel: str, by: str | None = None) -> None:
        """Begin the numbering of a channel anew: the next message on it says Reset.

        It is refused while a number is not settled, and before a whole window of numbers was used:
        a copy that the network kept could be taken for a message of the new numbering.
        """
        await self.here.operate(lambda engine: engine.restart(channel, _cut(by)))

    @verb(Need.STORE, Permission.OPERATE, Command("abandon", "given up", asks=asked_before))
    async def abandon(self, message_id: str, by: str | None = None) -> None:
        """Give up a message that we sent, or one that arrived and that the application refuses.

        What we sent is sent no more; in a numbered channel counting starts anew. What arrived, was
        offered to the application and is not taken by it is handed to nobody: what follows it in
        order goes on, its sender takes it for delivered, and `oncewire verify` counts it as lost.
        The journal keeps whose decision that was.
        """
        who = _cut(by or user_name())
        await self.here.operate(lambda engine: engine.abandon(message_id, who))

    @verb(
        Need.STORE,
        Permission.OPERATE,
        Command("hold", "held", fixed={"held": True}),
        Command(
            "release",
            "released",
            "Lift the legal hold of messages: retention removes them when their time is over.",
            fixed={"held": False},
        ),
    )
    async def hold(self, message_id: str, held: bool = True, by: str | None = None) -> None:
        """Keep a message, sent or received, for legal reasons, until the hold is lifted.

        Retention leaves it meanwhile. Without a hold a message is kept for persistDuration and
        what the agreement adds to it (delivery.keep), and always until everybody is done with
        it. `oncewire release` lifts the hold; so does a program, with `held=False`.
        """
        await self.here.operate(lambda engine: engine.hold(message_id, held=held, by=_cut(by)))

    @verb(
        Need.STORE,
        Permission.OPERATE,
        Command("clock accept", "accepted: the machine's clock is right"),
    )
    async def accept_clock(self, by: str | None = None) -> None:
        """The machine's clock was set and is right: go on by it, and let things expire again.

        While it is in doubt, what waits goes on waiting by the steady clock, and nothing is
        declared expired or cleared away. Set the clock right instead if it is wrong: that ends it
        by itself.
        """
        await self.here.operate(lambda engine: engine.accept_clock(_cut(by)))

    @verb(Need.STORE, Permission.OPERATE, Within("pipeline trim"))
    async def trim_journal(self, until: str, through: int, by: str | None = None) -> int:
        """Remove rows older than `until`, up to the position `through`, from the journal.

        It returns how many went. Rows of messages that are kept stay, with all that follow them.
        A copy of a message that no row tells of any more is taken for new, so whoever asks for this
        has the rows elsewhere: `oncewire pipeline trim` asks only for what a lake has.
        """
        from oncewire.entry.messages.listing import instant_of

        removed = 0
        while gone := await self.here.operate(
            lambda engine: engine.trim_journal(
                instant_of(until, engine.context.now()), through, _cut(by)
            )
        ):
            removed += gone
        return removed

    find = _listing("find", ("out", "in"), "Find messages, sent and received, newest first.")
    outbox = _listing("outbox", ("out",), "What we sent, newest first, and what became of it.")
    inbox = _listing("inbox", ("in",), "What arrived, newest first.")

    @verb(Need.STORE, Permission.LOOK, Within("why"))
    async def why(self, message_id: str, direction: str | None = None) -> Story:
        """Why a message is where it is, in one sentence, and every step that it took."""
        from oncewire.entry.messages.story import refused_words, story_of

        settings, told = self.here.settings, None
        story = await self.here.look(
            lambda reader, names, now: story_of(
                reader, names, message_id, now, settings, direction or ""
            )
        )
        # At rest nothing is offered to an application.
        with suppress(NotAllowed):
            told = self.here.handler.refusals().get(message_id)
        if told is None:
            return story
        return structs.replace(story, why=story.why + refused_words(message_id, told))

    @verb(Need.STORE, Permission.LOOK, Within("show"))
    async def show(self, message_id: str, direction: str | None = None) -> MessageDetails:
        """What is known of a message: parties, state, times, documents, hops, what may be done."""
        from oncewire.entry.messages.story import details_of

        settings = self.here.settings
        return await self.here.look(
            lambda reader, _, now: details_of(
                reader, message_id, now, settings, direction=direction or ""
            )
        )

    @verb(Need.STORE, Permission.LOOK, Within("incidents"))
    async def incidents(self, resolved: bool = False) -> list[Trouble]:
        """What needs a decision: one entry for each partner and cause, with how many it is about.

        `oncewire incidents` names the command that ends each.
        """
        from oncewire.entry.messages.outlook import incidents_of, troubles

        outage = (await self.here.condition()).outage
        return await self.here.look(
            lambda reader, names, _: troubles(
                reader, names, incidents_of(reader, outage, every=resolved)
            )
        )

    @verb(Need.STORE, Permission.LOOK, Within("status"))
    async def channels(self, limit: int = 50) -> list[ChannelView]:
        """The numbered channels with their windows, those that stand still first."""
        from oncewire.entry.watching.snapshot import channels_of

        return await self.here.look(lambda reader, _names, _now: channels_of(reader, limit))

    @verb(Need.STORE, Permission.LOOK, Within("status"))
    async def status(self) -> Status:
        """How the party is doing."""
        return await self.here.condition()

    @verb(Need.HANDLER, Permission.LOOK, NoCommand("watchers ask for it, at /metrics"))
    async def figures(self) -> str:
        """What is measured of a running handler, as Prometheus reads it."""
        from asyncio import to_thread

        from oncewire.entry.watching.metrics import metrics_text

        return (await to_thread(metrics_text, self.here.handler)).decode()

    @verb(Need.HANDLER, Permission.LOOK, NoCommand("`oncewire status` and /metrics tell it"))
    async def overview(self) -> Overview:
        """What a watcher sees of a running handler: partners, refusals, trouble, at one moment."""
        from asyncio import to_thread

        from oncewire.entry.party.settings import AlertSettings
        from oncewire.entry.watching.snapshot import overview

        settings, handler = self.here.settings, self.here.handler
        alerts = AlertSettings() if settings is None else settings.alerts
        try:
            return await to_thread(overview, handler, self.here.names(), alerts.silent_intervals)
        except TimeoutError as problem:
            raise HandlerFailed(str(problem), remedy="look into its log") from None

    @verb(Need.HANDLER, Permission.LOOK, NoCommand("watchers ask for it, at /readyz"))
    async def readiness(self) -> Readiness:
        """Whether a running handler can take messages now, why not, and what else is wrong."""
        from asyncio import to_thread

        from oncewire.entry.watching.snapshot import readiness

        return await to_thread(readiness, self.here.handler)


class Verbs(PartyVerbs, Performing):
    """All verbs, in the words of the control socket; programs have those that stand here in
    handier ones. Each returns when what it says is durable, or raises why it is not so."""

    @verb(Need.STORE, Permission.SUBMIT, Within("send"))
    async def send(self, submission: Submission) -> Accepted:
        """Take a document: from now on it is sent, or somebody is told."""
        return await self.here.submit(submission)

    @verb(Need.STORE, Permission.TAKE, Within("inbox confirm"))
    async def confirm(self, sender: str, message_id: str, by: str | None = None) -> bool:
        """Say that the application has a message: it is handed over no more.

        What comes back is whether that was new; saying it twice is harmless. A person who says so
        in the application's place is named: the journal tells the two apart.
        """
        return await self.here.operate(
            lambda engine: engine.confirm(sender, message_id, by=_cut(by)), "confirm"
        )

    @verb(Need.STORE, Permission.TAKE, Within("notices confirm"))
    async def confirm_notice(self, notice_id: str, by: str | None = None) -> bool:
        """Say that somebody knows of a failure: nobody is told of it again.

        What comes back is whether the notice was still owed; saying it twice is harmless.
        """
        return await self.here.operate(
            lambda engine: engine.confirm_notice(notice_id, _cut(by)), "told"
        )

    @verb(Need.STORE, Permission.OPERATE, NoCommand("every command that changes files asks for it"))
    async def reload(self) -> int:
        """Read agreements, certificates and keys anew; returns how many agreements there are."""
        return await self.here.read_anew()


TABLE = verbs_of(Verbs)
"""Every verb by its name."""
