"""One stream's year: its messages are handed in, and both ends do what the protocol says."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

from oncewire.message.instant import MILLISECOND, MINUTE, Instant
from oncewire.pipeline.sample_year.hub import Hub
from oncewire.pipeline.sample_year.letter import PLAIN, Letter, Trouble, draw_way, trouble_of
from oncewire.pipeline.sample_year.plan import Plan, submissions
from oncewire.pipeline.sample_year.receiving_side import ReceivingSide
from oncewire.pipeline.sample_year.row_writer import Draft, RowWriter
from oncewire.pipeline.sample_year.sending_side import SendingSide
from oncewire.pipeline.sample_year.split_documents import (
    PARTS,
    DocumentsReceived,
    DocumentsSent,
    cut,
)
from oncewire.pipeline.sample_year.stream import Force, Stream
from oncewire.pipeline.sample_year.twists import AGREED, NEVER
from oncewire.pipeline.sample_year.world import World
from oncewire.protocol import notes
from oncewire.protocol.effects import Note

_SUBMITTED = notes.Submitted()


def write_stream(plan: Plan, stream: Stream) -> list[Draft]:
    """All rows of one stream, in the order in which they came to be."""
    return _Exchange(plan, stream).rows()


class _Exchange:
    def __init__(self, plan: Plan, stream: Stream) -> None:
        self._plan, self._stream = plan, stream
        self._rng = Random(f"{plan.seed}/{stream.index}")  # noqa: S311 - a seeded year, no secret
        self._writer = RowWriter(stream.index, plan.end)
        self._world = World(self._writer, self._rng, plan.end)
        to = stream.hub or stream.receiver
        self._sending = SendingSide(
            self._world, stream.sender, to, stream.terms, channel=stream.channel
        )
        self._receiving = ReceivingSide(self._world, stream)
        self._sending.deliver = self._receiving.arrive
        if stream.hub is not None:
            hub = Hub(self._world, stream, stream.hub)
            hub.onward.deliver = self._receiving.arrive
            self._sending.deliver = hub.arrive
        if stream.split:
            self._sent = DocumentsSent(self._sending)
            self._received = DocumentsReceived(self._world, self._receiving)
        self._details = self._facts()
        self._channel, self._peer = stream.channel, stream.receiver.party

    def rows(self) -> list[Draft]:
        for index, when in enumerate(submissions(self._plan, self._stream, self._rng)):
            self._world.at(when, self._submit, index)
        self._world.run()
        return self._writer.rows

    def _facts(self) -> tuple[str, str]:
        """The details of submission and arrival, with a place for what differs."""
        stream = self._stream
        facts: dict[str, Any] = {
            "from_party": stream.sender.party,
            "to_party": stream.receiver.party,
            "cpa_id": stream.cpa_id,
            "conversation_id": "{conversation}",
            "service": "urn:service:orders",
            "action": "NewOrder",
            "best_effort": not stream.terms.reliable,
        }
        submitted = notes.Submitted(**facts).write() or ""
        received = notes.Received(
            **facts,
            signature_required=stream.signed,
            signature="verified" if stream.signed else "none",
        ).write()
        return submitted, received or ""

    def _submit(self, when: Instant, index: int) -> None:
        letter = self._letter(when, index)
        if letter.twist is not None:
            self._writer.twists[letter.message_id] = letter.twist
        if letter.does("invented"):
            self._world.at(when + MINUTE, self._receiving.invent, self._stranger(index, letter))
        if not self._stream.split:
            self._write_submitted(when, letter)
            self._send(when, letter)
            return
        parts = cut(letter, (letter.submitted, letter.received))
        whole = f'"split_id":"{letter.message_id}","split_total":{PARTS}'
        whole += f',"document_digest":"{letter.digest}"'
        letter.submitted = f"{letter.submitted[:-1]},{whole}}}"
        self._write_submitted(when, letter)
        self._received.wholes[letter.message_id] = letter
        for part in parts:
            part.troubles = self._troubles(when, part, letter.force)
            self._write_submitted(when, part)
        if letter.does("missing_part"):
            parts[1].troubles[1] = Trouble(lost=NEVER)
        self._sent.submit(when, letter, parts)

    def _send(self, when: Instant, letter: Letter) -> None:
        sending, world = self._sending, self._world
        if self._stream.hub is not None or not sending.goes_plainly(when, letter):
            sending.submit(when, letter)
            return
        arrived = when + world.latency(letter)
        sending.send_plainly(when, letter)
        self._receiving.arrive_plainly(arrived, letter)
        if self._stream.terms.reliable:
            back = arrived + 5 * MILLISECOND + world.latency(letter)
            sending.acknowledge_plainly(back, letter)

    def _letter(self, when: Instant, index: int) -> Letter:
        stream = self._stream
        force = stream.forces.get(index)
        message_id = self._plan.message_id(stream.index, index)
        conversation = f"c-{message_id[:10]}"
        submitted = self._details[0].replace("{conversation}", conversation)
        received = self._details[1].replace("{conversation}", conversation)
        digest = hashlib.sha256(message_id.encode()).hexdigest()
        letter = Letter(
            message_id, digest, self._world.between(400, 40_000), submitted, received, force=force
        )
        lifetime = stream.terms.time_to_live
        if stream.split:
            letter.expires_at = None if lifetime is None else when + stream.sender.skew + lifetime
        else:
            letter.troubles = self._troubles(when, letter, force)
        if letter.expires_at is not None:
            letter.submitted = f'{submitted[:-1]},"time_to_live":{letter.expires_at}}}'
        begins = index - 1 not in stream.forces
        letter.waits = letter.does("number_left_out") or (force is not None and begins)
        return letter

    def _troubles(self, when: Instant, letter: Letter, force: Force | None) -> dict[int, Trouble]:
        """What is in store for it on which hop, and how long it lives."""
        stream, terms = self._stream, self._stream.terms
        lifetime, hop = terms.time_to_live, 1
        if force is not None:
            trouble = PLAIN if force.ack_after == 0 else Trouble(ack_after=force.ack_after)
            twist = letter.twist
            if twist is not None:
                lost = 1 + terms.resends if twist.lost == AGREED else twist.lost
                trouble = Trouble(lost, twist.acks_lost, answer=twist.answer)
        else:
            way = draw_way(self._rng)
            if way == "expired" and not stream.split and stream.hub is None and terms.resends:
                lifetime = terms.timeout + terms.retry_interval // 2
            elif way == "expired":
                way = "plain"
            trouble = trouble_of(way, terms, self._rng)
            hop = 2 if stream.hub is not None and way != "resend" else 1
        if lifetime is not None:
            letter.expires_at = when + stream.sender.skew + lifetime
        return {hop: trouble}

    def _stranger(self, index: int, like: Letter) -> Letter:
        """What the receiver hands over though nobody submitted it."""
        message_id = self._plan.message_id(self._stream.index, -index)
        digest = hashlib.sha256(message_id.encode()).hexdigest()
        return Letter(message_id, digest, like.size, "", like.received)

    def _write_submitted(self, when: Instant, letter: Letter) -> None:
        self._writer.note(
            self._stream.sender,
            when,
            Note(_SUBMITTED, letter.message_id, channel=self._channel),
            terms_id=self._sending.terms_id,
            peer=self._peer,
            digest=letter.digest,
            size=letter.size,
            detail=letter.submitted,
        )
