"""What is said: frozen values in the drafts' own words, checked where they are made."""

from oncewire.message.envelope import ANSWERS, Dialect, Message, MessageKind
from oncewire.message.header import (
    AckRequest,
    DeliverySemantics,
    Header,
    ReliableMessagingMethod,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
    Split,
    SyncReplyMode,
)
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.payload import Compression, Payload, Reference
from oncewire.message.signals import (
    Acknowledgment,
    AcknowledgmentType,
    AckRequested,
    Actor,
    Error,
    ErrorClass,
    ErrorList,
    MessageStatus,
    Severity,
    SignedDigest,
    StatusRequest,
    StatusResponse,
)

__all__ = [
    "ANSWERS",
    "AckRequest",
    "AckRequested",
    "Acknowledgment",
    "AcknowledgmentType",
    "Actor",
    "Compression",
    "DeliverySemantics",
    "Dialect",
    "Error",
    "ErrorClass",
    "ErrorList",
    "Header",
    "Message",
    "MessageKind",
    "MessageStatus",
    "Party",
    "PartyId",
    "Payload",
    "Reference",
    "ReliableMessagingMethod",
    "RoutingHeader",
    "SequenceNumber",
    "SequenceStatus",
    "Service",
    "Severity",
    "SignedDigest",
    "Split",
    "StatusRequest",
    "StatusResponse",
    "SyncReplyMode",
]
