"""Reading the blocks beside the drafts' Header: routing, manifest, errors, acknowledgements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from oncewire.errors import InvalidValue, TransientError
from oncewire.message.envelope import (
    CODE_CONTEXT,
    Acknowledgment,
    AcknowledgmentType,
    Actor,
    DeliverySemantics,
    Error,
    ErrorList,
    Header,
    Message,
    MessageKind,
    MessageStatus,
    Reference,
    RoutingHeader,
    SequenceNumber,
    SequenceStatus,
    Severity,
    SignedDigest,
    Split,
    StatusRequest,
    StatusResponse,
)
from oncewire.message.form import AckRequest, Dialect, ReliableMessagingMethod, SyncReplyMode
from oncewire.message.ids import Party, PartyId
from oncewire.wire.xml import (
    WHITESPACE,
    Element,
    attribute,
    children,
    foreign_text,
    identifier,
    local_name,
    optional_attribute,
    read_moment,
    text,
    whole_number,
)

if TYPE_CHECKING:
    from oncewire.wire.parcel import Findings

# The words of the drafts of 2000 and 2001, and the aliases readers accept
# (docs/explanation/decisions.md#drafts-on-the-wire).


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
# The second in every spelling of the drafts; the last is a slip that a sender may copy (C10).
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
    """What full names stand for, each looked up once. A dictionary answers in half the time of an
    LRU cache; a partner that sends more names than fit empties it."""

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


# One element of a draft header: children and attributes by name, whatever their spelling.
#
# The drafts leave open what is an attribute and what an element, and partners differ in namespaces
# and in capitals (docs/explanation/decisions.md#drafts-on-the-wire), so a value is asked for by
# its name alone.


# Never changed.
_NO_CHILDREN: dict[str, list[Element]] = {}
_NO_ATTRIBUTES: dict[str, str] = {}
_NONE: frozenset[str] = frozenset()
# The stubs of lxml think that a name might be bytes.
_attributes: Callable[[Element], Any] = Element.items


class DraftElement:
    """A view on an lxml element; `names` are canonical (lower case, aliases joined).

    A caller that asks for the one child or attribute of a name gets the first. A second one is
    reported to `findings`, because another reader might take that one instead.
    """

    __slots__ = ("_doubled", "_findings", "attributes", "children", "element")

    def __init__(self, element: Element, findings: Findings | None = None) -> None:
        self.element = element
        self._findings = findings
        # Most elements have only the one or the other.
        self.children = _by_name(element) if len(element) else _NO_CHILDREN
        self.attributes = _NO_ATTRIBUTES
        self._doubled = _NONE
        if items := _attributes(element):
            self.attributes = found = {}
            # The first of a name counts.
            for key, value in items:
                name = canonical_tag(key)
                if name not in found:
                    found[name] = value
                else:
                    # In two namespaces, or in two spellings.
                    self._doubled |= {name}

    @property
    def order(self) -> list[tuple[str, Element]]:
        """Name and element of each child, as they stand."""
        return [(canonical_tag(child.tag), child) for child in self.element]

    def first(self, name: str) -> DraftElement | None:
        """The only child of that name."""
        found = self.children.get(name)
        if not found:
            return None
        if len(found) > 1:
            self._twice(found[1])
        return DraftElement(found[0], self._findings)

    def all(self, name: str) -> list[DraftElement]:
        """Every child of that name."""
        found = self.children.get(name)
        return [DraftElement(child, self._findings) for child in found] if found else []

    def attribute(self, name: str) -> str | None:
        """The only attribute of that name, as it is written."""
        if self._doubled and name in self._doubled and self._findings is not None:
            place = _place(self.element)
            self._findings.twice(f"the attribute {name}", f"{place}/@{name}")
        return self.attributes.get(name)

    def value(self, name: str) -> str | None:
        """An attribute of that name, or the text of a child of that name."""
        # The attribute first: that is how the drafts print most of their values.
        value = self.attribute(name) if self.attributes else None
        found = self.children.get(name)
        if found and (value is not None or len(found) > 1):
            self._twice(found[-1])
        if value is not None:
            return value.strip(WHITESPACE)
        return (found[0].text or "").strip(WHITESPACE) if found else None

    def _twice(self, element: Element) -> None:
        if self._findings is not None:
            self._findings.twice(local_name(element), _place(element))

    @property
    def text(self) -> str:
        """The element's text without the white space around it."""
        return (self.element.text or "").strip(WHITESPACE)


def _by_name(element: Element) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {}
    for child in children(element):
        name = canonical_tag(child.tag)
        if name in found:
            found[name].append(child)
        else:
            found[name] = [child]
    return found


def _place(element: Element) -> str:
    """Where an element stands, as errors name places: without the root, which is one for all."""
    names = [local_name(element)]
    names.extend(local_name(parent) for parent in element.iterancestors())
    return "//" + "/".join(reversed(names[:-1] or names))


def ack_request(word: str, location: str, findings: Findings) -> AckRequest | None:
    """Signed, Unsigned or None, and nothing else (ACK-13)."""
    value = ACK_REQUESTS.get(word.lower())
    if value is None:
        findings.not_recognized(
            f"{word[:32]!r} is not a kind of acknowledgement",
            location,
            "send Signed, Unsigned or None",
        )
    return value


def routing(root: DraftElement, dialect: Dialect, findings: Findings) -> tuple[RoutingHeader, ...]:
    """Every RoutingHeader, oldest first, in a list or alone."""
    hops: list[RoutingHeader] = []
    # 0.9x has a list, v0-078 a single one (C24). The last is the hop just made (HDR-5).
    listed = root.first("routingheaderlist")
    for element in [*(listed.all("routingheader") if listed else ()), *root.all("routingheader")]:
        hop = _hop(element, dialect, findings)
        if hop is not None:
            hops.append(hop)
    return tuple(hops)


def _hop(element: DraftElement, dialect: Dialect, findings: Findings) -> RoutingHeader | None:
    location = "//RoutingHeader"
    # Attribute or element, under the old name too (C12).
    word = element.value("ackrequested")
    asked = ack_request(word, f"{location}/@ackRequested", findings) if word else None
    stamp = element.value("timestamp")
    try:
        return RoutingHeader(
            sender_uri=element.value("senderuri"),
            receiver_uri=element.value("receiveruri"),
            # By URI in 0.9x, by PartyID in v0-078; both are kept where both stand (C25).
            sender_id=_party_id(element.first("senderid")),
            receiver_id=_party_id(element.first("receiverid")),
            timestamp=None if stamp is None else read_moment(stamp)[0],
            error_uri=element.value("erroruri"),
            # Absence means None (ACK-13).
            ack_requested=asked or AckRequest.NONE,
            method=_method(element.value("reliablemessagingmethod"), location, findings),
            sequence=_sequence(element.first("sequencenumber"), dialect, location, findings),
            # Which of a party's handlers it is (HDR-4).
            msh_id=element.value("messageserviceid"),
        )
    except InvalidValue as problem:
        findings.invalid(problem, location)
        return None


def _party_id(element: DraftElement | None) -> PartyId | None:
    if element is None:
        return None
    # SenderID is itself a PartyID, or holds one: the table of v0-078 can be read either way
    # (HDR-1).
    inner = element.first("partyid") or element
    return PartyId(inner.text, inner.value("context") or inner.value("type") or None)


def _method(word: str | None, location: str, findings: Findings) -> ReliableMessagingMethod:
    # Absence counts as ebXML (RM-5).
    if word is None:
        return ReliableMessagingMethod.EBXML
    method = METHODS.get(word.lower())
    if method is not None:
        return method
    findings.not_recognized(
        f"reliableMessagingMethod {word[:32]!r} is not known",
        f"{location}/@reliableMessagingMethod",
        "send ebXML or Transport",
    )
    return ReliableMessagingMethod.EBXML


def _sequence(
    element: DraftElement | None, dialect: Dialect, location: str, findings: Findings
) -> SequenceNumber | None:
    """SequenceNumber of the hop (HDR-3), with its Status where there is one (SEQ-13)."""
    if element is None:
        return None
    number = whole_number(element.text)
    if number is None:
        findings.inconsistent(
            f"SequenceNumber {element.text[:32]!r} is not a number", location, "send a whole number"
        )
        return None
    word = element.value("status")
    status: SequenceStatus | None = None
    if word is not None:
        status = STATUSES.get(word.lower())
        if status is None:
            findings.not_recognized(
                f"Status {word[:32]!r} is neither Reset nor Continue",
                location,
                "send Reset or Continue",
            )
    elif dialect is not Dialect.RM_078:
        # v0-078 has no Status: there the number 1 alone begins a series (C7).
        status = SequenceStatus.CONTINUE
    return SequenceNumber(number, status)


def manifest(root: DraftElement, findings: Findings) -> tuple[list[Reference], list[list[Element]]]:
    """The references, and the foreign elements of each."""
    element = root.first("manifest")
    references: list[Reference] = []
    foreign: list[list[Element]] = []
    if element is None:
        return references, foreign
    for item in element.all("reference"):
        try:
            references.append(_reference(item))
        except InvalidValue as problem:
            findings.invalid(problem, "//Manifest/Reference/@href")
            continue
        foreign.append(
            [child for name, child in item.order if name not in ("schema", "description")]
            if item.children
            else []
        )
    # Neither a list of payloads nor the word that there are none.
    if not references:
        findings.inconsistent(
            "Manifest has no Reference",
            "//Manifest/Reference",
            "name the payloads, or leave the Manifest out",
        )
    return references, foreign


def _reference(item: DraftElement) -> Reference:
    return Reference(
        # xlink:href, with or without its namespace; only attributes here, as MS 1.0 has it.
        href=(item.attribute("href") or "").strip(),
        role=item.attribute("role"),
        id=item.attribute("id"),
        schemas=tuple(
            [
                (schema.attribute("location") or "", schema.attribute("version"))
                for schema in item.all("schema")
            ]
        ),
        descriptions=tuple(
            [
                (words.attribute("lang") or "", words.element.text or "")
                for words in item.all("description")
            ]
        ),
    )


def with_foreign(
    message: Message,
    own: tuple[bytes, ...],
    references: list[tuple[bytes, ...]],
    digests: list[tuple[SignedDigest, ...]],
) -> Message:
    """The message with the exact bytes of what is foreign in it."""
    return replace(
        message,
        header=replace(message.header, foreign=own),
        manifest=tuple(
            replace(reference, foreign=foreign) if foreign else reference
            for reference, foreign in zip(message.manifest, references, strict=True)
        ),
        acknowledgments=tuple(
            replace(answer, references=given) if given else answer
            for answer, given in zip(message.acknowledgments, digests, strict=True)
        ),
    )


def error_list(root: DraftElement, findings: Findings) -> ErrorList | None:
    """ErrorList; MinRetrySecs stands beside the errors and belongs to the transient one."""
    element = root.first("errorlist")
    if element is None:
        return None
    # The picture of it is lost (gap 3), so it is read beside the errors and inside one.
    seconds = whole_number(element.value("minretrysecs"))
    errors = []
    for item in element.all("error"):
        error = _error(item, seconds, findings)
        if error is not None:
            errors.append(error)
    if not errors:
        findings.inconsistent("ErrorList has no Error", "//ErrorList/Error", "report an Error")
        return None
    return ErrorList(tuple(errors))


def _error(item: DraftElement, seconds: int | None, findings: Findings) -> Error | None:
    own = whole_number(item.value("minretrysecs"))
    seconds = seconds if own is None else own
    code = item.value("errorcode") or ""
    # Unsaid it is taken as serious; a Warning would leave the message waiting.
    severity = item.value("severity") or "Error"
    try:
        return Error(
            code=code,
            severity=Severity(severity.capitalize()),
            location=item.value("location") or "",
            description=_message_words(item),
            code_context=item.value("codecontext") or CODE_CONTEXT,
            # Only a Transient Error may make a sender wait.
            min_retry_secs=seconds if code == TransientError.code else None,
        )
    except InvalidValue as problem:
        findings.invalid(problem, "//ErrorList/Error")
    except ValueError:
        findings.inconsistent(
            f"severity {severity[:32]!r} is neither Warning nor Error",
            "//ErrorList/Error/@severity",
            "send Warning or Error",
        )
    return None


def _message_words(item: DraftElement) -> str:
    # An attribute in the drafts (SYNC-17), a Description in what came after.
    stated = item.value("errormessage") is not None
    said = item.first("errormessage" if stated else "description")
    words = item.attribute("errormessage")
    if words is not None:
        return words
    return (said.element.text or "") if said else ""


def acknowledgments(
    root: DraftElement, header: Header, findings: Findings
) -> tuple[list[Acknowledgment], list[list[Element]]]:
    """Each Acknowledgment (ACK-17..19) and its ds:Reference elements, if it has any.

    It acknowledges what MessageData refers to.
    """
    answers = []
    digests = []
    for element in root.all("acknowledgment"):
        stamp = element.value("timestamp")
        word = element.value("type")
        kind = ACK_TYPES.get(word.lower()) if word else None
        if word and kind is None:
            findings.not_recognized(
                f"Acknowledgment type {word[:32]!r} is not known",
                "//Acknowledgment/@type",
                "send DeliveryReceipt or IntermediateAck",
            )
        # No type counts as DeliveryReceipt (ACK-19).
        intermediate = kind is AcknowledgmentType.INTERMEDIATE_ACK
        try:
            answers.append(
                Acknowledgment(
                    timestamp=read_moment(stamp or "")[0],
                    # The drafts name it in MessageData alone (ACK-3).
                    ref_to_message_id=element.value("reftomessageid")
                    or header.ref_to_message_id
                    or "",
                    from_party=_from(element.first("from")),
                    actor=Actor.NEXT_MSH if intermediate else Actor.TO_PARTY_MSH,
                    # What it says of itself; whether a signature is there and holds is judged by
                    # `wire/security`.
                    signed=(element.value("signed") or "false").lower() in ("true", "1"),
                    type=kind,
                )
            )
        except InvalidValue as problem:
            findings.invalid(problem, "//Acknowledgment")
            continue
        digests.append(element.children.get("reference", []))
    return answers, digests


def _from(element: DraftElement | None) -> Party | None:
    """Who made the acknowledgement; Header's From where it is missing (ACK-18)."""
    if element is None:
        return None
    ids = [_party_id(child) for child in element.all("partyid")]
    return Party(tuple(party_id for party_id in ids if party_id is not None))


def status(
    root: DraftElement, findings: Findings
) -> tuple[StatusRequest | None, StatusResponse | None]:
    """StatusData: a question without messageStatus, an answer with it."""
    element = root.first("statusdata")
    if element is None:
        return None, None
    named = element.value("reftomessageid") or ""
    word = element.value("messagestatus")
    stamp = element.value("timestamp")
    try:
        # 0.9x has one element for both, told apart by its answer; 1.0 made two of it.
        if word is None:
            return StatusRequest(named), None
        moment = None if stamp is None else read_moment(stamp)[0]
        return None, StatusResponse(named, MessageStatus(word), moment)
    except InvalidValue as problem:
        findings.invalid(problem, "//StatusData")
    except ValueError:
        findings.not_recognized(
            f"messageStatus {str(word)[:32]!r} is not a status",
            "//StatusData/@messageStatus",
            "send one of " + ", ".join(known.value for known in MessageStatus),
        )
    return None, None


# Pieces that both drafts' writers share: manifest, errors, payload references.


# An element without a namespace would join ours, or be mistaken for it.
_OWN = frozenset({"", NAMESPACE})


def write_manifest(message: Message) -> str:
    """Manifest, when the message has references."""
    if not message.manifest:
        return ""
    references = "".join([_write_reference(reference) for reference in message.manifest])
    return f'<Manifest xmlns:xlink="{XLINK}">{references}</Manifest>'


def _write_reference(reference: Reference) -> str:
    """One reference, as MS 1.0 has it: the drafts print no manifest."""
    inner = ""
    for location, version in reference.schemas:
        stated = optional_attribute("version", version)
        inner += f'<Schema location="{attribute(location)}"{stated}/>'
    for language, words in reference.descriptions:
        inner += f'<Description xml:lang="{attribute(language)}">{text(words)}</Description>'
    for element in reference.foreign:
        inner += foreign_text(element, _OWN)
    return (
        f'<Reference xlink:type="simple" xlink:href="{attribute(reference.href)}"'
        f"{optional_attribute('xlink:role', reference.role)}"
        f"{optional_attribute('id', reference.id)}>{inner}</Reference>"
    )


def write_error_list(errors: ErrorList | None) -> str:
    """ErrorList with its MinRetrySecs (gap 3)."""
    if errors is None:
        return ""
    inner = "".join(
        f'<Error errorCode="{attribute(error.code)}" severity="{error.severity.value}"'
        + optional_attribute(
            "codeContext", error.code_context if error.code_context != CODE_CONTEXT else None
        )
        + optional_attribute("location", error.location or None)
        + optional_attribute("errorMessage", error.description or None)
        + "/>"
        for error in errors.errors
    )
    # One for the whole list, so the longest: a sender that waits less is turned away again.
    pauses = [e.min_retry_secs for e in errors.errors if e.min_retry_secs is not None]
    pause = f"<MinRetrySecs>{max(pauses)}</MinRetrySecs>" if pauses else ""
    return (
        f'<ErrorList highestSeverity="{errors.highest_severity.value}">{inner}{pause}</ErrorList>'
    )


def split(value: Split | None) -> str:
    """SplitId and SplitNumber inside MessageData (BIG-5)."""
    if value is None:
        return ""
    return (
        f"<SplitId>{identifier(value.split_id)}</SplitId>"
        f'<SplitNumber Total="{value.total}">{value.number}</SplitNumber>'
    )


def foreign(message: Message) -> str:
    """Foreign elements at the end of Header, as their own bytes (HDR-7)."""
    return "".join([foreign_text(element, _OWN) for element in message.header.foreign])
