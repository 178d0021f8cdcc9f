"""One handler at a desk: parcels are handed in as a transport would, and every answer is read.

Corpus messages belong to parties far away and to years long past, so the desk stands at the
moment a test says, under the agreement a test gives it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oncewire.agreement.agreement import Agreement, Agreements, Origin
from oncewire.agreement.compose import layer
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Action, Notice, Post, PostAnswer, Source, Submission
from oncewire.handler.context import HandlerContext, Keys
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.sending.transmit import Transmission
from oncewire.journal.check import check_journal
from oncewire.journal.predicates.context import Violation
from oncewire.journal.row import Row
from oncewire.message.envelope import Error, Message
from oncewire.message.form import Form
from oncewire.message.instant import SECOND, Duration, parse_instant
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.memory.store import MemoryStore
from oncewire.store.records import StoredOutgoing
from oncewire.wire import codec
from oncewire.wire.inspection import open_capture
from oncewire.wire.parcel import Parcel
from oncewire.wire.refusal import Fault
from tests.handler.pair import TestWorld
from tests.wire.roots import read_fault

HTTP = Source("http", can_answer=True)
MAIL = Source("smtp")
SOAP_ACTION = (("SOAPAction", '"ebXML"'),)


@dataclass(frozen=True)
class Reply:
    """What came back on the connection."""

    status: int
    # None: an empty body, or a Fault.
    message: Message | None = None
    fault: Fault | None = None
    parcel: Parcel | None = None

    @property
    def errors(self) -> tuple[Error, ...]:
        """The errors of its ErrorList."""
        errors = self.message.error_list if self.message is not None else None
        return errors.errors if errors is not None else ()

    @property
    def error(self) -> tuple[str, str, str]:
        """errorCode, location and severity of the first error."""
        first = self.errors[0]
        return first.code, first.location, first.severity.value


class Desk:
    """A handler in memory whose clock stands still."""

    def __init__(
        self, *agreements: Agreement, at: str, keys: Keys | None = None, form: Form | None = None
    ) -> None:
        self.world = TestWorld("desk")
        self.world.time = parse_instant(at)[0]
        node = HandlerContext(
            "desk", MemoryStore("desk"), Agreements(agreements, form=form), self.world, keys=keys
        )
        self.engine = Engine(node)
        # What left for the partner on connections of its own, and what the application was told.
        self.posts: list[Post] = []
        self.posted: list[PostAnswer] = []
        self.notices: list[Notice] = []
        self.actions: list[Action] = []
        self.engine.start()
        self.commit()

    def commit(self) -> list[Action]:
        """Make it so, and keep what leaves."""
        actions = self.engine.commit()
        self.actions += actions
        self.posts += [one for one in actions if isinstance(one, Post)]
        self.posted += [one for one in actions if isinstance(one, PostAnswer)]
        self.notices += [one for one in actions if isinstance(one, Notice)]
        return actions

    # --- receiving ---

    def hand_in(self, parcel: Parcel, source: Source = HTTP) -> Reply:
        """What the transport gets back for a parcel, after the commit."""
        answer = self.engine.receive(parcel, source)
        self.commit()
        if answer.parcel is None:
            return Reply(answer.status)
        back = whole_parcel(self.engine.context, answer.parcel)
        fault = read_fault(back.body)
        message = codec.read(back).message if fault is None else None
        return Reply(answer.status, message, fault, back)

    def answers(self) -> list[Message]:
        """The signals that left on connections of their own."""
        return [
            codec.read(whole_parcel(self.engine.context, one.parcel)).message for one in self.posted
        ]

    def take(self) -> list[GivenMessage]:
        """The application takes what is ready, and confirms it."""
        taken = self.engine.take(100, 30 * SECOND)
        self.commit()
        for stored in taken:
            self.engine.confirm(stored.incoming.sender, stored.incoming.message_id)
        self.commit()
        return [GivenMessage.of(self.engine.context, one) for one in taken]

    # --- sending ---

    def send(self, submission: Submission) -> Post:
        """Submit, and give back the attempt that leaves."""
        self.engine.submit(submission)
        self.commit()
        return self.posts[-1]

    def parcel(self, post: Post) -> Parcel:
        """The bytes of an attempt."""
        return whole_parcel(self.engine.context, post.parcel)

    def hear(self, post: Post, reply: Parcel | None, *, sent: bool = True) -> None:
        """The attempt ended, and this came back with it; `sent`: the status was a 2xx."""
        ended = Transmission(post.message_id, post.attempt, sent=sent, reason="" if sent else "500")
        self.engine.transmission_over(ended, reply)
        self.commit()

    def pass_time(self, duration: Duration) -> None:
        """Let time pass, and do what becomes due."""
        self.world.time += duration
        self.engine.tick()
        self.commit()

    def stored(self, message_id: str) -> StoredOutgoing:
        """A message that was sent from here."""
        with self.engine.context.store.transition() as tx:
            found = tx.outgoing(message_id)
        assert found is not None
        return found

    def state(self, message_id: str) -> OutgoingState:
        """Where a message that was sent from here stands."""
        return self.stored(message_id).outgoing.state

    def terms(self, message_id: str) -> Terms:
        """What a message that was sent from here runs under."""
        terms_id = self.stored(message_id).outgoing.terms_id
        with self.engine.context.store.transition() as tx:
            return self.engine.context.terms_of(tx, terms_id)

    # --- looking ---

    def violations(self) -> tuple[Violation, ...]:
        """What the checker finds in this handler's journal."""
        with self.engine.context.store.reader() as reader:
            return check_journal(reader.journal_since(0, 1_000_000), healed=False).violations

    @property
    def refused(self) -> int:
        """How many messages were refused, with a row of the journal or only counted."""
        counted = sum(one.count for one in self.engine.context.state.refusals.counted)
        return max(counted, len(self.journal("refused")))

    def journal(self, kind: str) -> list[Row]:
        """The rows of one kind."""
        return [row for row in self.every_row() if row.kind == kind]

    def every_row(self) -> list[Row]:
        """The journal."""
        with self.engine.context.store.reader() as reader:
            return list(reader.journal_since(0, 1_000_000))


# --- agreements --------------------------------------------------------------------------------


def cpa(path: Path, own: str | int, **over: object) -> Agreement:
    """A CPA as one of its parties sees it; `wire__unknown_ref="error"` overrides a value."""
    values = {name.replace("__", "."): value for name, value in over.items()}
    return read_cpa(path.read_bytes(), own=own, over=layer(values, Origin.FILE, "test"))


def toml(
    profile: str, own: str, partner: str, cpa_id: str, extra: str = "", *, any_cpa_id: bool = False
) -> Agreement:
    """An agreement of a community; parties are TOML values: a string or a list of tables."""
    return read_toml(
        f'cpa_id = "{cpa_id}"\nprofile = "{profile}"\nany_cpa_id = {str(any_cpa_id).lower()}\n'
        f'[own]\nparty_id = {own}\nhttp = "http://own/msh"\nsmtp = "mailto:msh@own"\n'
        f'[partner]\nparty_id = {partner}\nhttp = "http://partner/msh"\n'
        f'smtp = "mailto:msh@partner"\n{extra}'
    )


# --- parcels -----------------------------------------------------------------------------------


def filled(template: bytes, values: Mapping[str, str]) -> bytes:
    """A template of ebms-core with its placeholders filled by the values of an agreement."""
    text = re.sub(r'\s*th:each="[^"]*"', "", template.decode())
    text = re.sub(r'th:eb:type="\$\{(\w+)\}"', lambda match: f'eb:type="{values[match[1]]}"', text)
    text = re.sub(r'th:eb:type="(\w+)"', r'eb:type="\1"', text)
    text = re.sub(r'th:xlink:href="[^"]*"', 'xlink:href="cid:1"', text)
    return re.sub(r"\[\[\$\{(\w+)\}\]\]", lambda match: values[match[1]], text).encode()


def soap_parcel(envelope: bytes, headers: tuple[tuple[str, str], ...] = SOAP_ACTION) -> Parcel:
    """An envelope without payloads, as HTTP carries it."""
    return Parcel("text/xml; charset=UTF-8", envelope, headers)


def recorded(data: bytes) -> Parcel:
    """The parcel in a recorded exchange, mail or MIME frame."""
    return open_capture(data).parcel
