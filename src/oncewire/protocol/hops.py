"""Hops: what an intermediary does with a message that is not for itself."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from oncewire.message.envelope import Actor, Error, Message, MessageKind, Severity
from oncewire.message.form import AckRequest
from oncewire.protocol.states import Outgoing, OutgoingState
from oncewire.protocol.synchronous import SyncPlan
from oncewire.protocol.terms import HopMode, Terms


class HopDuty(StrEnum):
    """What the intermediary takes upon itself."""

    RESPONSIBLE = "responsible"  # store, acknowledge, forward, report failure (HOP-8)
    UNTIL_FORWARDED = "until forwarded"  # Transient Error until the next hop has it (HOP-4)
    PROXY = "proxy"  # pass on and pass back; no reliability here (HOP-7)


def hop_duty(message: Message, terms: Terms) -> HopDuty:
    """The duty for this message under the agreed hop mode (C23, C39)."""
    if not message.reliable:
        # Acknowledgements and best-effort messages are passed on and forgotten; a failure
        # notice is as reliable as the message it speaks of (C33).
        return HopDuty.PROXY
    if terms.hop_mode is HopMode.TRANSPARENT:
        return HopDuty.PROXY
    if terms.hop_mode is HopMode.TRANSIENT_UNTIL_FORWARDED:
        return HopDuty.UNTIL_FORWARDED
    if terms.hop_mode is HopMode.BY_REQUEST:
        asked = message.asks_ack_of(Actor.NEXT_MSH) is not AckRequest.NONE
        return HopDuty.RESPONSIBLE if asked else HopDuty.PROXY
    return HopDuty.RESPONSIBLE


def awaits_onward(message: Message, duty: HopDuty, plan: SyncPlan) -> bool:
    """Whether a request's connection is kept until the next hop has spoken (SYNC-11, SYNC-16).

    The hub that took responsibility can acknowledge its hop at once; it waits where more was asked
    for than that: the response, or the To Party's own acknowledgement.
    """
    if not plan.signals or duty is not HopDuty.RESPONSIBLE:
        return plan.signals
    return plan.response or message.asks_ack_of(Actor.TO_PARTY_MSH) is not AckRequest.NONE


class HopAnswer(Struct, frozen=True, gc=False):
    """What the previous sender is told: an acknowledgement, or to come back later."""

    acknowledge: bool
    error: Error | None = None


def answer_previous(duty: HopDuty, onward: Outgoing | None, terms: Terms) -> HopAnswer:
    """The answer while the onward hop stands as it does.

    With `transient_until_forwarded` an acknowledgement at the From Party means that the
    final handler has the message (v0-078 §4.3); until then the previous sender waits.
    """
    if duty is not HopDuty.UNTIL_FORWARDED:
        return HopAnswer(duty is HopDuty.RESPONSIBLE)
    if onward is not None and onward.state is OutgoingState.DELIVERED:
        return HopAnswer(True)
    if onward is not None and onward.state is OutgoingState.NOT_DELIVERED:
        failure = Error("DeliveryFailure", Severity.ERROR, "", onward.reason[:300])
        return HopAnswer(False, failure)
    pause = max(1, terms.retry_interval // 1_000_000)
    waiting = Error(
        "TransientError", Severity.WARNING, "", "not forwarded yet", min_retry_secs=pause
    )
    return HopAnswer(False, waiting)


def owes_failure_notice(message_kind: MessageKind, *, reliable: bool) -> bool:
    """Whether the failure of a message is reported to its From Party (C33, C34).

    A failure notice, an error or an acknowledgement never causes another notice: its own
    failure is an incident.
    """
    return reliable and message_kind is MessageKind.NORMAL
