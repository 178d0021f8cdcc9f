"""alpha asks and beta's application answers, over a connection that the test holds in its hand."""

from __future__ import annotations

from collections.abc import Sequence

from oncewire.handler.actions import Post, PostAnswer, Source, Submission
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.sending.answer import Answer, Awaited
from oncewire.handler.sending.transmit import Transmission
from oncewire.journal.row import Row
from oncewire.message.envelope import Message
from oncewire.message.ids import Service
from oncewire.message.instant import SECOND
from oncewire.message.payload import Payload
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.store.records import StoredParcel
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.pair import Pair

AT_WEB = Source("http", can_answer=True)
ALPHA = "urn:test:alpha"


def response(number: int, of: int = 1, **more: object) -> Submission:
    """Response `number` to order `of`."""
    document = Payload.of(f"response-{number}", "text/plain", f"response {number}".encode())
    return Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "Answer",
        (document,),
        conversation_id="talk",
        message_id=f"response-{number}@beta",
        ref_to_message_id=f"order-{of}@alpha",
        **more,  # type: ignore[arg-type]
    )


class Asking:
    """Two engines; nothing travels unless the test carries it."""

    def __init__(self, profile: str = "ebms2", extra: str = "", *, called: bool = True) -> None:
        self.pair = Pair(profile, extra, lose_request=lambda attempt: True)
        self.beta.context.application_called = called
        # What left beta on connections of its own, in order.
        self.posted: list[StoredParcel] = []

    @property
    def alpha(self) -> Engine:
        return self.pair.alpha

    @property
    def beta(self) -> Engine:
        return self.pair.beta

    def order(self, number: int = 1, **more: object) -> Parcel:
        """The bytes of an order that alpha stored."""
        self.pair.send(number, **more)
        with self.alpha.context.store.reader() as reader:
            stored = reader.outgoing_parcel(f"order-{number}@alpha")
        assert stored is not None
        return whole_parcel(self.alpha.context, stored)

    def arrive(self, parcel: Parcel, source: Source = AT_WEB) -> Answer:
        """beta gets the bytes; its answer counts after the commit. Its connection waits if it
        must."""
        answer = self.beta.receive(parcel, source)
        if answer.awaited is not None:
            key = answer.awaited.sender, answer.awaited.message_id
            self.beta.context.state.replying = {*self.beta.context.state.replying, key}
        self.commit()
        return answer

    def ask(self, number: int = 1) -> Awaited:
        """An order arrives, and its connection waits."""
        awaited = self.arrive(self.order(number)).awaited
        assert awaited is not None
        return awaited

    def commit(self) -> None:
        """Make beta's state durable and keep what leaves."""
        for action in self.beta.commit():
            if isinstance(action, Post | PostAnswer):
                self.posted.append(action.parcel)

    def take(self) -> list[str]:
        """What beta's application is given."""
        taken = self.beta.take(10, 60 * SECOND)
        self.commit()
        return [one.incoming.message_id for one in taken]

    def confirm(self, number: int, *responses: Submission) -> None:
        """It has the order, and answers."""
        self.beta.confirm(ALPHA, f"order-{number}@alpha", responses)
        self.commit()

    def reply(self, awaited: Awaited) -> Parcel:
        """What goes back on the connection that waited."""
        answer = self.beta.reply_to(awaited)
        self.commit()
        assert answer is not None
        return self.bytes_of(answer)

    def bytes_of(self, answer: Answer) -> Parcel:
        assert answer.parcel is not None
        return whole_parcel(self.beta.context, answer.parcel)

    def bytes_of_posted(self, place: int) -> Parcel:
        return whole_parcel(self.beta.context, self.posted[place])

    def hear(self, number: int, reply: Parcel) -> None:
        """alpha hears the reply on the connection of its order."""
        ended = Transmission(f"order-{number}@alpha", 1, sent=True)
        self.alpha.transmission_over(ended, reply)
        self.alpha.commit()

    def outcome(self, number: int) -> OutgoingState:
        with self.alpha.context.store.transition() as tx:
            stored = tx.outgoing(f"order-{number}@alpha")
        assert stored is not None
        return stored.outgoing.state

    def state(self, number: int) -> IncomingState:
        with self.beta.context.store.transition() as tx:
            stored = tx.incoming(ALPHA, f"order-{number}@alpha")
        assert stored is not None
        return stored.incoming.state

    def left(self) -> list[Message]:
        """The messages that left beta by themselves."""
        return [codec.read(whole_parcel(self.beta.context, one)).message for one in self.posted]

    def rows(self, name: str, *kinds: str) -> list[Row]:
        """What one of them journaled."""
        with self.pair.engines[name].context.store.reader() as reader:
            rows: Sequence[Row] = reader.journal_since(0, 1_000_000)
        return [row for row in rows if not kinds or row.kind in kinds]
