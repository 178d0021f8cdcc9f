"""Expected: whether anybody here waits for a message, judged by its header alone.

Nothing is proved yet, so nothing is promised: the message is judged in full when it is whole. But
whom no agreement names, and who does not repeat or answer anything that we know, is refused now.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.agreement.resolve import Resolution, resolve
from oncewire.errors import EbxmlError, SoapFault
from oncewire.handler.node import Node
from oncewire.handler.sealing.confide import ENCRYPTED_BYTES_MAX
from oncewire.message.envelope import Message
from oncewire.protocol.hops import HopDuty, hop_duty
from oncewire.store.contract import Transaction
from oncewire.wire.received import Received

PASSED_BYTES_MAX = 256 * 1024 * 1024
"""The largest payload that a hub passes on without storing it: it has it in memory. What it stores
and forwards stays in its file."""

ENCRYPTED_FACTOR = 2
"""What is encrypted travels as base64 in XML, a third larger and with its keys around it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the agreement says of a message that is on its way in."""

    # Why it is not taken; None: it may come.
    error: EbxmlError | SoapFault | None = None
    # The most bytes that a payload of it may have as it travels, where that is agreed.
    max_size: int | None = None


def expected(node: Node, tx: Transaction, received: Received) -> Expected:
    """Whether the rest of a message may come."""
    message = received.message
    try:
        resolution = resolve(node.agreements, message, receiving=True, now=node.now())
    except (EbxmlError, SoapFault) as error:
        # A copy, or an answer, belongs under the agreement of what it repeats or answers.
        return Expected() if _is_about_known(tx, message) else Expected(error)
    passed = resolution.at_hop and hop_duty(message, resolution.terms) is HopDuty.PROXY
    return Expected(max_size=_max_size(resolution, passed=passed))


def _is_about_known(tx: Transaction, message: Message) -> bool:
    message_id, reference = message.header.message_id, message.header.ref_to_message_id
    if tx.incoming_by_id(message_id) or tx.removed(message_id):
        return True
    if reference is None:
        return False
    return tx.outgoing(reference) is not None or bool(tx.incoming_by_id(reference))


def _max_size(resolution: Resolution, *, passed: bool) -> int | None:
    size = resolution.terms.max_size
    if resolution.security.encrypt:
        # It is opened in memory.
        plain = ENCRYPTED_BYTES_MAX if size is None else min(size, ENCRYPTED_BYTES_MAX)
        return plain * ENCRYPTED_FACTOR + 65_536
    if passed:
        # Nothing of it is stored that its onward copy could lie in.
        return PASSED_BYTES_MAX if size is None else min(size, PASSED_BYTES_MAX)
    return size
