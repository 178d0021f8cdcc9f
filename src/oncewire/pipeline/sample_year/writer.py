"""The writer: one stream's year, message by message, as rows of every node it touches."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

from oncewire.journal.outcome import Outcome
from oncewire.journal.predicates.retry import attempts_allowed
from oncewire.message.instant import MILLISECOND, MINUTE, SECOND, Instant
from oncewire.pipeline.sample_year import sender_rows as sending
from oncewire.pipeline.sample_year.faults import PARTS
from oncewire.pipeline.sample_year.misbehaviour import MISBEHAVIOURS
from oncewire.pipeline.sample_year.numbering import Numbering
from oncewire.pipeline.sample_year.plan import Plan, split_id, submissions
from oncewire.pipeline.sample_year.receiver_rows import Arrived, Receiver, document_digest
from oncewire.pipeline.sample_year.row_writer import NOWHERE, Draft, Place, RowWriter
from oncewire.pipeline.sample_year.sender_rows import (
    NEVER,
    Hop,
    acknowledge,
    acknowledge_as_agreed,
    fail,
    transmit,
)
from oncewire.pipeline.sample_year.stream import Force, Stream
from oncewire.protocol import notes
from oncewire.protocol.kinds import Kind
from oncewire.protocol.terms import OnExhausted

_SHARE_OF = {
    "plain": 900,
    "resend": 35,
    "lost_ack": 35,
    "unknown": 6,
    "late_ack": 5,
    "no_connection": 4,
    "rejected": 7,
    "transient": 4,
    "expired": 4,
}
_WAYS, _SHARES = tuple(_SHARE_OF), tuple(_SHARE_OF.values())


def write_stream(plan: Plan, stream: Stream) -> list[Draft]:
    """All rows of one stream, in no particular order."""
    return _Writer(plan, stream).write()


class _Writer:
    def __init__(self, plan: Plan, stream: Stream) -> None:
        self._plan, self._stream = plan, stream
        self._rng = Random(f"{plan.seed}/{stream.index}")  # noqa: S311 - a seeded year, no secret
        self._writer = RowWriter(stream.index, plan.end)
        self._terms_id = stream.terms.terms_id
        self._numbering = Numbering(self._writer, stream)
        self._arrived: list[Arrived] = []
        self._submitted, self._received = self._details()
        # While a message is in trouble all that follow go plainly.
        self._trouble_until: Instant = 0

    def write(self) -> list[Draft]:
        stream = self._stream
        for index, when in enumerate(submissions(self._plan, stream, self._rng)):
            self._message(index, when)
        receiver = Receiver(self._writer, self._rng, stream)
        receiver.play(self._arrived)
        if stream.split:
            for start in range(0, len(self._arrived), PARTS):
                parts = self._arrived[start : start + PARTS]
                if parts[0].split_id is not None:
                    receiver.join(parts[0].split_id, parts, document_digest(parts[0].split_id))
        return self._writer.rows

    def _details(self) -> tuple[str, str]:
        """The details of submission and arrival, with a place for what differs."""
        stream = self._stream
        facts: dict[str, Any] = {
            "from_party": stream.sender.party,
            "to_party": stream.receiver.party,
            "cpa_id": stream.cpa_id,
            "conversation_id": "{conversation}",
            "service": "urn:service:orders",
            "action": "NewOrder",
        }
        submitted = notes.Submitted(**facts).write() or ""
        received = notes.Received(
            **facts,
            signature_required=stream.signed,
            signature="verified" if stream.signed else "none",
        ).write()
        return submitted, received or ""

    # --- one message ---

    def _message(self, index: int, submitted: Instant) -> None:
        stream, rng = self._stream, self._rng
        force = stream.forces.get(index)
        message_id = self._plan.message_id(stream.index, index)
        digest = hashlib.sha256(message_id.encode()).hexdigest()
        size = rng.randrange(400, 40_000)
        conversation = f"c-{message_id[:10]}"
        said = self._submitted.replace("{conversation}", conversation)
        received = self._received.replace("{conversation}", conversation)
        document = None
        if stream.split and index - index % PARTS + PARTS <= stream.count:
            document = split_id(self._plan.seed, stream.index, index // PARTS)
            said, received = self._as_part(said, received, document, index % PARTS + 1)
        way = "plain" if force is not None else self._way()
        lifetime = self._lifetime(way)
        if lifetime is not None:
            until = submitted + lifetime
            said = f'{said[:-1]},"time_to_live":{until + stream.sender.skew}}}'
        force = force or Force()
        self._writer.write(
            stream.sender, submitted, Kind.SUBMITTED, message_id,
            terms_id=self._terms_id, place=Place(stream.channel), peer=stream.receiver.party,
            digest=digest, size=size, detail=said,
        )  # fmt: skip
        arrived = Arrived(message_id, digest, size, received, force=force, split_id=document)
        self._arrived.append(arrived)
        if force.misbehaviour == "never_sent":
            return
        entered, place, receiving = self._enter(message_id, submitted + 1, force)
        if stream.terms.numbered and entered < self._trouble_until:
            way = "plain"
        arrived.epoch, arrived.number = receiving.epoch or 0, receiving.number
        hop = Hop(
            self._writer, rng, stream.sender, stream.hub or stream.receiver, stream.terms,
            message_id, place=place,
        )  # fmt: skip
        if force.misbehaviour == "invented":
            self._invent(index, arrived, submitted)
        if stream.hub is not None:
            self._through_hub(hop, entered, arrived, way)
            return
        settled = self._exchange(hop, entered, arrived, way, submitted)
        self._numbering.settled(settled)
        if way != "plain":
            self._trouble_until = max(self._trouble_until, settled + SECOND)

    def _as_part(self, said: str, received: str, document: str, number: int) -> tuple[str, str]:
        part = f'"split_id":"{document}","split_number":{number},"split_total":{PARTS}'
        whole = f'"document_digest":"{document_digest(document)}"'
        return f"{said[:-1]},{part},{whole}}}", f"{received[:-1]},{part}}}"

    def _enter(self, message_id: str, when: Instant, force: Force) -> tuple[Instant, Place, Place]:
        if not self._stream.terms.numbered:
            return when, NOWHERE, NOWHERE
        return self._numbering.enter(message_id, when, force)

    def _way(self) -> str:
        terms, stream = self._stream.terms, self._stream
        way = self._rng.choices(_WAYS, _SHARES)[0]
        ways = len(terms.transports)
        if way in ("resend", "lost_ack", "expired") and attempts_allowed(terms) * ways < 2:
            return "plain"
        if stream.split and way not in ("resend", "lost_ack"):
            return "plain"
        if terms.numbered and way in ("transient", "expired"):
            return "plain"
        if way == "expired" and attempts_allowed(terms) < 2:
            return "plain"
        if stream.hub is not None and way in ("transient", "expired", "no_connection", "late_ack"):
            return "plain"
        return way

    def _lifetime(self, way: str) -> int | None:
        terms = self._stream.terms
        if way == "expired":
            return terms.timeout + terms.retry_interval // 2
        return terms.time_to_live

    # --- from one handler to the other ---

    def _exchange(
        self, hop: Hop, start: Instant, arrived: Arrived, way: str, submitted: Instant
    ) -> Instant:
        """Play the sender; returns when the message is settled."""
        rng, terms = self._rng, self._stream.terms
        misbehaviour = arrived.force.misbehaviour
        if misbehaviour in MISBEHAVIOURS:
            return MISBEHAVIOURS[misbehaviour](hop, start, arrived)
        if way == "resend":
            done = transmit(hop, start, lost=1 + rng.randrange(self._attempts() - 1))
        elif way == "lost_ack":
            done = transmit(hop, start, acks_lost=1 + rng.randrange(self._attempts() - 1))
        elif way in ("unknown", "late_ack"):
            done = transmit(hop, start, lost=NEVER if way == "unknown" else 0, acks_lost=NEVER)
        elif way == "no_connection":
            done = transmit(hop, start, lost=NEVER, refused=True)
        elif way == "expired":
            lifetime = self._lifetime(way) or 0
            done = transmit(hop, start, lost=NEVER, until=submitted + lifetime)
        elif way in ("rejected", "transient"):
            return self._answered(hop, start, arrived, way)
        elif misbehaviour == "no_skip":
            return self._answered(hop, start, arrived, "rejected")
        else:
            done = transmit(hop, start, ack_after=arrived.force.ack_after)
        arrived.arrivals = hop.arrivals
        if done.acknowledged:
            return acknowledge_as_agreed(hop, done.when)
        if way == "expired":
            hop.note(done.when, Kind.EXPIRED, notes.Expired("TimeToLive"))
            return fail(hop, done.when, Outcome.UNKNOWN, "expired")
        if terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL:
            resumed = sending.suspend(hop, done.when)
            self._numbering.suspended(done.when, resumed)
            again = transmit(hop, resumed)
            arrived.arrivals = hop.arrivals
            return acknowledge_as_agreed(hop, again.when)
        outcome = Outcome.NOT_DELIVERED if way == "no_connection" else Outcome.UNKNOWN
        ended = fail(hop, done.when, outcome, "exhausted")
        if way == "late_ack":
            late = done.when + rng.randrange(MINUTE, 30 * MINUTE)
            acknowledge_as_agreed(hop, late, late=True)
        if hop.place.number is not None:
            self._numbering.given_up(ended + 1)
        return sending.give_up_number(hop, ended + 1)

    def _attempts(self) -> int:
        """How many attempts there are in all."""
        return sum(
            not used_up
            for _, _, used_up in sending.attempts(self._stream.terms, 0, Random(0))  # noqa: S311
        )

    def _answered(self, hop: Hop, start: Instant, arrival: Arrived, way: str) -> Instant:
        """The receiver answers with an error, or asks for a pause."""
        hop.send(start, self._stream.terms.transports[0])
        arrived = start + hop.latency()
        if way == "transient":
            until = start + self._stream.terms.timeout + MINUTE
            hop.note(
                arrived + hop.latency(),
                Kind.TRANSIENT,
                notes.Transient(until + self._stream.sender.skew),
            )
            if attempts_allowed(self._stream.terms) < 2:
                # No retry is agreed: the one attempt was the last.
                hop.writer.write(
                    hop.handler, until, Kind.EXHAUSTED, hop.message_id,
                    place=hop.place, transport=self._stream.terms.transports[0],
                )  # fmt: skip
                arrival.arrivals = []
                return self._after_exhausted(hop, until)
            hop.send(until + SECOND, self._stream.terms.transports[0])
            arrival.arrivals = [until + SECOND + hop.latency()]
            return acknowledge_as_agreed(hop, arrival.arrivals[0] + hop.latency())
        arrival.arrivals, arrival.refused = [arrived], "TimeToLiveExpired"
        ended = sending.rejected(hop, arrived + hop.latency(), arrival.refused)
        if not self._numbering.opening:
            return ended
        # The opener of an epoch is settled by an acknowledgement or not at all.
        self._numbering.given_up(ended + 1)
        return sending.give_up_number(hop, ended + 1)

    def _after_exhausted(self, hop: Hop, when: Instant) -> Instant:
        hop.note(when + 1, Kind.ABANDONED, notes.Abandoned("operator", "no answer"))
        return fail(hop, when + 2, Outcome.UNKNOWN, "abandoned")

    # --- over an intermediary ---

    def _through_hub(self, hop: Hop, start: Instant, arrived: Arrived, way: str) -> None:
        """The hub takes responsibility at once and carries on by itself."""
        stream, hub = self._stream, self._stream.hub
        if hub is None:
            return
        lost = 1 if way == "resend" and attempts_allowed(stream.terms) > 1 else 0
        done = transmit(hop, start, lost=lost)
        taken = hop.arrivals[0]
        self._hub_receives(hop, arrived, taken)
        acknowledge(hop, done.when, notes.Acknowledged(hop=True), ack_id="")
        onward = Hop(
            self._writer, self._rng, hub, stream.receiver, stream.terms, arrived.message_id, hop=2
        )
        self._writer.write(
            hub, taken + MILLISECOND, Kind.FORWARDED, arrived.message_id,
            terms_id=self._terms_id, hop=2, peer=stream.receiver.party,
            digest=arrived.digest, size=arrived.size,
            detail=notes.Forwarded(stream.sender.party, stream.receiver.party).write(),
        )  # fmt: skip
        if arrived.force.misbehaviour == "not_passed_on":
            return
        begun = taken + 2 * MILLISECOND
        if way == "unknown" and stream.terms.on_exhausted is OnExhausted.FAIL_MESSAGE:
            ended = transmit(onward, begun, lost=NEVER)
            fail(onward, ended.when, Outcome.UNKNOWN, "exhausted")
            self._taken_back(hop, ended.when + SECOND)
            return
        if way == "rejected":
            onward.send(begun, stream.terms.transports[0])
            arrived.arrivals, arrived.refused = [begun + onward.latency()], "ValueNotRecognized"
            answered = arrived.arrivals[0] + onward.latency()
            sending.rejected(onward, answered, arrived.refused)
            sending.rejected(hop, answered + SECOND, "DeliveryFailure")
            return
        lost_acks = 1 if way == "lost_ack" and attempts_allowed(stream.terms) > 1 else 0
        ended = transmit(onward, begun, acks_lost=lost_acks)
        arrived.arrivals = onward.arrivals
        acknowledge_as_agreed(onward, ended.when)
        # The receipt of the To Party itself travels back through the hub.
        final = Hop(
            self._writer, self._rng, hop.handler, stream.receiver, stream.terms, arrived.message_id
        )
        acknowledge_as_agreed(final, ended.when + 50 * MILLISECOND)

    def _hub_receives(self, hop: Hop, arrived: Arrived, when: Instant) -> None:
        hub = hop.to
        self._writer.write(
            hub, when, Kind.RECEIVED, arrived.message_id, terms_id=self._terms_id, hop=1,
            peer=hop.handler.party, transport="http", digest=arrived.digest, size=arrived.size,
            detail=arrived.received,
        )  # fmt: skip
        self._writer.write(
            hub, when + 2, Kind.ACK_SENT, arrived.message_id,
            ref_to=sending.ack_of(arrived.message_id, hub), hop=1, peer=hop.handler.party,
            detail=notes.AckSent(hop=True).write(),
        )  # fmt: skip

    def _taken_back(self, hop: Hop, when: Instant) -> None:
        """A hub that failed tells the From Party, whose handler had its word (HOP-9)."""
        hop.writer.write(
            hop.handler, when, Kind.REJECTED, hop.message_id,
            ref_to=f"err-{hop.message_id}", peer=hop.to.party,
            detail=notes.Rejected("DeliveryFailure", "Warning").write(),
        )  # fmt: skip
        fail(hop, when, Outcome.UNKNOWN, "rejected")

    def _invent(self, index: int, like: Arrived, when: Instant) -> None:
        """The receiver hands over what nobody submitted."""
        stranger = self._plan.message_id(self._stream.index, -index)
        digest = hashlib.sha256(stranger.encode()).hexdigest()
        self._arrived.append(
            Arrived(stranger, digest, like.size, like.received, arrivals=[when + MINUTE],
                    force=Force("invented"))
        )  # fmt: skip
