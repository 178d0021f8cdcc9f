"""The words of the drafts of 2000 and 2001, and the aliases readers accept
(docs/decisions.md#drafts-on-the-wire)."""

from __future__ import annotations

from collections.abc import Callable

from oncewire.message import (
    AcknowledgmentType,
    AckRequest,
    DeliverySemantics,
    MessageKind,
    ReliableMessagingMethod,
    SequenceStatus,
    SyncReplyMode,
)

# MS 1.0's name; the drafts print none, so a header without any is read as well.
NAMESPACE = "http://www.ebxml.org/namespaces/messageHeader"
XLINK = "http://www.w3.org/1999/xlink"
DRAFT_TYPE = "application/vnd.eb+xml"
MS_VERSION = "0.93"
# v0-078 has no envelope of its own: it extends that of MS v0-21.
RM_VERSION = "0.21"

_SERVICE = "http://www.ebxml.org/namespaces/messageService/"
ACK_SERVICE = _SERVICE + "MessageAcknowledgment"
ERROR_SERVICE = _SERVICE + "MessageError"
# MS 1.0 gathered the signals under one Service; it is accepted too (gap 6).
MS10_SERVICE = "uri:www.ebxml.org/messageService/"

SIGNALS: dict[MessageKind, tuple[str, str]] = {
    MessageKind.ACKNOWLEDGMENT: (ACK_SERVICE, "Acknowledgment"),
    MessageKind.ERROR: (ERROR_SERVICE, "MessageError"),
    MessageKind.STATUS_REQUEST: (_SERVICE + "MessageStatus", "StatusRequest"),
    MessageKind.STATUS_RESPONSE: (_SERVICE + "MessageStatus", "StatusResponse"),
    MessageKind.PING: (_SERVICE + "MessagePing", "Ping"),
    MessageKind.PONG: (_SERVICE + "MessagePing", "Pong"),
}
"""Service and Action of each signal; only the first is printed in the drafts (ACK-10)."""

_BY_ACTION = {action.lower(): kind for kind, (_, action) in SIGNALS.items()}
# By Action only under these: an application may have an Action called Ping.
_SIGNAL_SERVICES = {service for service, _ in SIGNALS.values()} | {MS10_SERVICE}


def kind_of_signal(service: str, action: str | None) -> MessageKind | None:
    """Which signal a Service and Action stand for, or None for business."""
    if service == ACK_SERVICE:
        # Its Action is Acknowledgment or, with typed acks, the type (ACK-11).
        return MessageKind.ACKNOWLEDGMENT
    if service == ERROR_SERVICE:
        # Whatever its Action: no text says which one it has (gap 6).
        return MessageKind.ERROR
    if service in _SIGNAL_SERVICES:
        return _BY_ACTION.get((action or "").lower())
    return None


# v0-078's three (ACK-7), the second in both spellings.
MESSAGE_TYPES = {
    "normal": MessageKind.NORMAL,
    "acknowledgement": MessageKind.ACKNOWLEDGMENT,
    "acknowledgment": MessageKind.ACKNOWLEDGMENT,
    "error": MessageKind.ERROR,
}

SEMANTICS = {
    "onceandonlyonce": DeliverySemantics.ONCE_AND_ONLY_ONCE,
    "exactlyonce": DeliverySemantics.ONCE_AND_ONLY_ONCE,
    # v0-078 calls the reliable way AtMostOnce; ebMS 2.0 uses the words otherwise (C1).
    "atmostonce": DeliverySemantics.ONCE_AND_ONLY_ONCE,
    "besteffort": DeliverySemantics.BEST_EFFORT,
    "unspecified": DeliverySemantics.BEST_EFFORT,
}
ACK_REQUESTS = {word.value.lower(): word for word in AckRequest}
METHODS = {word.value.lower(): word for word in ReliableMessagingMethod}
STATUSES = {word.value.lower(): word for word in SequenceStatus}
# The second in every spelling of the drafts; the last is a slip that somebody may copy (C10).
ACK_TYPES = {
    "deliveryreceipt": AcknowledgmentType.DELIVERY_RECEIPT,
    "intermediateack": AcknowledgmentType.INTERMEDIATE_ACK,
    "intermediateacknowledgment": AcknowledgmentType.INTERMEDIATE_ACK,
    "intermediateacknowledgement": AcknowledgmentType.INTERMEDIATE_ACK,
    "intemediateacknowledgment": AcknowledgmentType.INTERMEDIATE_ACK,
}
# Exactly these, capitals included: SYNC-15 limits the attribute to them. Inside they are words of
# CPPA 2.0 (C31).
SYNC_MODES = {
    "AcksOnly": SyncReplyMode.MSH_SIGNALS_ONLY,
    "ResponseOnly": SyncReplyMode.RESPONSE_ONLY,
    "AcksAndResponse": SyncReplyMode.SIGNALS_AND_RESPONSE,
}
SYNC_WORDS = {mode: word for word, mode in SYNC_MODES.items()}

# Each pair is one thing that two drafts call differently (C10, C12, C18); none has a second meaning
# in the other.
ALIASES = {
    "acknowledgement": "acknowledgment",
    "intermediateackrequested": "ackrequested",
    "qualityofservice": "qualityofserviceinfo",
    "reliablemessaginginfo": "qualityofserviceinfo",
    "tpaid": "cpaid",
    "serviceinterface": "service",
}
"""By lower-case local name, which already joins MessageID, TimeStamp and ConversationID."""


NAMES_MAX = 2048
"""Full names that are known at the same time; partners write a few dozen."""


class _Names(dict[str, str]):
    """What full names stand for, each looked at once: a dictionary answers in half the time of a
    cache that also remembers which one was asked for last. Whoever sends more names than fit has
    all looked at anew."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        super().__init__()
        self._name_of = name_of

    def __missing__(self, tag: str) -> str:
        if len(self) >= NAMES_MAX:
            self.clear()
        name = self[tag] = self._name_of(tag)
        return name


def _lower_name(tag: str) -> str:
    return tag[tag.rfind("}") + 1 :].lower()


def _canonical_tag(tag: str) -> str:
    lowered = _lower_name(tag)
    return ALIASES.get(lowered, lowered)


lower_name: Callable[[str], str] = _Names(_lower_name).__getitem__
"""The local name of an element or attribute in lower case."""

canonical_tag: Callable[[str], str] = _Names(_canonical_tag).__getitem__
"""The one name under which an element or attribute of that full name is looked up."""
