"""Ignored: what was said about a message, and changed nothing, leaves a trace.

A signal may prove nothing, come from somebody who has no say, or say too little. Its sender may
be waiting all the same, and whoever looks for the reason finds it here: a log line, and a row of
the message it is about, which `why` shows. Anybody can send such signals, so rows and lines are
written for the first of them, the second, the fourth and so on: each says how many there were.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.naming import sender_of
from oncewire.handler.node import Node
from oncewire.handler.tally import is_told
from oncewire.message.envelope import Message, MessageKind
from oncewire.protocol.detail import TEXT_MAX
from oncewire.protocol.effects import Note
from oncewire.protocol.notes import Ignored, Refused
from oncewire.store.contract import Transaction

logger = logging.getLogger("oncewire.handler")


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody said, in a word, and why it does not count."""

    kind: str
    code: str
    problem: str
    # Who says so, as far as anybody can tell.
    peer: str | None = None
    # The signal's own MessageId, if it has one.
    signal_id: str | None = None
    transport: str | None = None

    @classmethod
    def of(cls, message: Message, agreement: Agreement, code: str, problem: str) -> Claim:
        """The claim of the agreement's partner, who proved to be the one who makes it."""
        header = message.header
        peer = str(sender_of(agreement, header.from_party))
        return cls(word_for(message.kind), code, problem, peer, header.message_id)


def word_for(kind: MessageKind | None) -> str:
    """A kind of signal as people call it."""
    return _WORDS.get(kind, MESSAGE)


MESSAGE = "message"
"""What is no signal."""

_WORDS: dict[MessageKind | None, str] = {
    MessageKind.ACKNOWLEDGMENT: "acknowledgement",
    MessageKind.ERROR: "error",
    MessageKind.STATUS_RESPONSE: "status",
    MessageKind.STATUS_REQUEST: "status request",
    MessageKind.PING: "ping",
    MessageKind.PONG: "pong",
}


def ignore(node: Node, tx: Transaction, claim: Claim, about: str | None) -> None:
    """Take note of a claim about a message of ours, or about one that nobody here knows."""
    known = about is not None and tx.outgoing(about) is not None
    # Names that a stranger may choose count for nothing here: he could choose many.
    name = f"about {about}" if known else f"{claim.kind} {claim.code}"
    count = node.ignored.count(name, node.now())
    if not is_told(count):
        return
    said = {"claim": claim.kind, "code": claim.code, "problem": claim.problem[:TEXT_MAX]}
    logger.warning(
        "a signal was ignored",
        extra={**said, "message_id": about, "peer": claim.peer, "count": count},
    )
    if known:
        what = Ignored(claim.kind, claim.code, claim.problem, count)
        note = Note(what, about, claim.signal_id, transport=claim.transport)
    else:
        signal = None if claim.kind == MESSAGE else claim.kind
        refused = Refused(claim.code, problem=claim.problem, signal=signal)
        note = Note(refused, claim.signal_id, about, transport=claim.transport)
    node.write(tx, [note], peer=claim.peer)


def ignore_unbacked(
    node: Node, tx: Transaction, agreement: Agreement, written: Message, believed: Message
) -> None:
    """Take note of acknowledgements that a message carries and its signature does not cover."""
    backed = {ack.ref_to_message_id for ack in believed.acknowledgments}
    for ack in written.acknowledgments:
        if ack.ref_to_message_id not in backed:
            problem = "it lies outside the signature of the message that carries it"
            claim = Claim.of(written, agreement, "SecurityFailure", problem)
            ignore(node, tx, replace(claim, kind="acknowledgement"), ack.ref_to_message_id)
