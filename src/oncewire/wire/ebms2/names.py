"""The names ebMS 2.0 puts on the wire, by its schema 2.0c, and those of our extensions
(docs/decisions.md#extensions)."""

from __future__ import annotations

from oncewire.message import MessageKind

# SOAP 1.1 alone (§2.1.1); the namespace of 1.2 is known only to be answered with VersionMismatch.
SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
SOAP12 = "http://www.w3.org/2003/05/soap-envelope"
# The namespace is the schema's own address. Nothing is ever fetched from it.
EB = "http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"
XLINK = "http://www.w3.org/1999/xlink"
DS = "http://www.w3.org/2000/09/xmldsig#"
XML = "http://www.w3.org/XML/1998/namespace"
RMX = "urn:oncewire:ext:1"
RMX_ERRORS = "urn:oncewire:ext:1:errors"

VERSION = "2.0"
# SOAP's own word for whoever comes next (SOAP 1.1 §4.2.2): SyncReply is for every handler on the
# way.
ACTOR_NEXT = "http://schemas.xmlsoap.org/soap/actor/next"
# What handlers say to each other; an application never sees this Service (§3.1.4).
SIGNAL_SERVICE = "urn:oasis:names:tc:ebxml-msg:service"
# The range of §9.1.1, and that of the slides (SEQ-12).
SEQUENCE_MAX = 99_999_999

# Actions of §6.3.2, §4.2.4, §7.1 and §8; the Action alone tells the kind, not what is found in
# the message.
SIGNAL_ACTIONS: dict[str, MessageKind] = {
    "Acknowledgment": MessageKind.ACKNOWLEDGMENT,
    "MessageError": MessageKind.ERROR,
    "StatusRequest": MessageKind.STATUS_REQUEST,
    "StatusResponse": MessageKind.STATUS_RESPONSE,
    "Ping": MessageKind.PING,
    "Pong": MessageKind.PONG,
}


def _eb(name: str) -> str:
    return f"{{{EB}}}{name}"


ENVELOPE = f"{{{SOAP}}}Envelope"
HEADER = f"{{{SOAP}}}Header"
BODY = f"{{{SOAP}}}Body"
FAULT = f"{{{SOAP}}}Fault"
ACTOR = f"{{{SOAP}}}actor"
MUST_UNDERSTAND = f"{{{SOAP}}}mustUnderstand"

MESSAGE_HEADER = _eb("MessageHeader")
SYNC_REPLY = _eb("SyncReply")
MESSAGE_ORDER = _eb("MessageOrder")
ACK_REQUESTED = _eb("AckRequested")
ACKNOWLEDGMENT = _eb("Acknowledgment")
ERROR_LIST = _eb("ErrorList")
ERROR = _eb("Error")
MANIFEST = _eb("Manifest")
REFERENCE = _eb("Reference")
SCHEMA = _eb("Schema")
STATUS_REQUEST = _eb("StatusRequest")
STATUS_RESPONSE = _eb("StatusResponse")
FROM = _eb("From")
TO = _eb("To")
PARTY_ID = _eb("PartyId")
ROLE = _eb("Role")
CPA_ID = _eb("CPAId")
CONVERSATION_ID = _eb("ConversationId")
SERVICE = _eb("Service")
ACTION = _eb("Action")
MESSAGE_DATA = _eb("MessageData")
MESSAGE_ID = _eb("MessageId")
TIMESTAMP = _eb("Timestamp")
REF_TO_MESSAGE_ID = _eb("RefToMessageId")
TIME_TO_LIVE = _eb("TimeToLive")
DUPLICATE_ELIMINATION = _eb("DuplicateElimination")
DESCRIPTION = _eb("Description")
SEQUENCE_NUMBER = _eb("SequenceNumber")

# The schema qualifies attributes too: a bare `version` is somebody else's.
A_ID = _eb("id")
A_TYPE = _eb("type")
A_VERSION = _eb("version")
A_STATUS = _eb("status")
A_SIGNED = _eb("signed")
A_LOCATION = _eb("location")
A_CODE_CONTEXT = _eb("codeContext")
A_ERROR_CODE = _eb("errorCode")
A_SEVERITY = _eb("severity")
A_HIGHEST_SEVERITY = _eb("highestSeverity")
A_MESSAGE_STATUS = _eb("messageStatus")
A_LANG = f"{{{XML}}}lang"
A_HREF = f"{{{XLINK}}}href"
A_ROLE = f"{{{XLINK}}}role"

SIGNATURE = f"{{{DS}}}Signature"
DS_REFERENCE = f"{{{DS}}}Reference"
DS_DIGEST_METHOD = f"{{{DS}}}DigestMethod"
DS_DIGEST_VALUE = f"{{{DS}}}DigestValue"

# Ours. Split and Compression lie inside signed elements, the others belong to a hop
# (docs/decisions.md#extensions).
SPLIT = f"{{{RMX}}}Split"
SPLIT_ID = f"{{{RMX}}}SplitId"
SPLIT_NUMBER = f"{{{RMX}}}SplitNumber"
HOP_SEQUENCE = f"{{{RMX}}}HopSequence"
ROUTING_HEADER_LIST = f"{{{RMX}}}RoutingHeaderList"
ROUTING_HEADER = f"{{{RMX}}}RoutingHeader"
ROUTING_FIELDS = tuple(
    f"{{{RMX}}}{name}" for name in ("SenderURI", "ReceiverURI", "ErrorURI", "Timestamp")
)
COMPRESSION = f"{{{RMX}}}Compression"
STRETCH = f"{{{RMX}}}Stretch"
MIN_RETRY_SECS = f"{{{RMX}}}MinRetrySecs"
