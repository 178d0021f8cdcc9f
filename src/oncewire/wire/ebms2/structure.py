"""What stands where in an ebMS 2.0 header, as the standard's own tables have it.

`schema` makes its validator of them; `find_repeated` refuses what they let stand once.
"""

from __future__ import annotations

from oncewire.wire.ebms2 import names as n
from oncewire.wire.refusal import Findings
from oncewire.wire.xml.tree import Element, children, local_name

# Children: `?` optional, `*` any number, `+` at least one; `other*` is any foreign element.
# Attributes: `!` required, `?` optional; `other` is any foreign attribute.
# In place of children, `= type` is text of that type.
# §2.3.7 to §2.3.9: what every header block has.
_BLOCK = "id? version! soap:mustUnderstand! other"
_BODY_BLOCK = "id? version! other"
_HEADER_DATA = "From To CPAId ConversationId Service Action MessageData"
STRUCTURE: dict[str, tuple[str, str]] = {
    "MessageHeader": (f"{_HEADER_DATA} DuplicateElimination? Description* other*", _BLOCK),
    "From": ("PartyId+ Role?", ""),
    "To": ("PartyId+ Role?", ""),
    "PartyId": ("= text", "type?text"),
    "CPAId": ("= text", ""),
    "ConversationId": ("= text", ""),
    "Service": ("= text", "type?text"),
    "Action": ("= text", ""),
    "MessageData": ("MessageId Timestamp RefToMessageId? TimeToLive?", ""),
    "MessageId": ("= text", ""),
    "Timestamp": ("= xs:dateTime", ""),
    "RefToMessageId": ("= text", ""),
    "TimeToLive": ("= xs:dateTime", ""),
    # Any text passes: its presence is what counts (§3.1.7).
    "DuplicateElimination": ("= xs:string", ""),
    "Description": ("= text", "xml:lang!"),
    "SyncReply": ("other*", f"{_BLOCK} soap:actor!"),
    "MessageOrder": ("SequenceNumber other*", _BLOCK),
    "SequenceNumber": ("= xs:nonNegativeInteger", "status?order"),
    "AckRequested": ("other*", f"{_BLOCK} soap:actor? signed!xs:boolean"),
    # No wildcard behind ds:Reference (§6.3.2.5): a Reference would fit both.
    "Acknowledgment": ("Timestamp RefToMessageId From? ds*", f"{_BLOCK} soap:actor?"),
    "ErrorList": ("Error+ other*", f"{_BLOCK} highestSeverity!severity"),
    "Error": (
        "Description? other*",
        "id? codeContext?xs:anyURI errorCode!text severity!severity location?text other",
    ),
    "Manifest": ("Reference+ other*", _BODY_BLOCK),
    # xlink:type is fixed (§3.2.1), and may be left out.
    "Reference": (
        "Schema* Description* other*",
        "id? xlink:type?=simple xlink:href! xlink:role? other",
    ),
    "Schema": ("", "location!xs:anyURI version?text"),
    "StatusRequest": ("RefToMessageId other*", _BODY_BLOCK),
    "StatusResponse": ("RefToMessageId Timestamp? other*", f"{_BODY_BLOCK} messageStatus!status"),
}

# What the schema leaves to the envelope, to signatures and to extensions. AckRequested and
# Acknowledgment may stand once per actor, which `rules` judges; a Signature any number of times,
# each signer adding one (§4.1.1). What else is in the Body is not ours and is left alone.
_BESIDE: dict[str, tuple[str, ...]] = {
    n.HEADER: (
        n.MESSAGE_HEADER,
        n.SYNC_REPLY,
        n.MESSAGE_ORDER,
        n.ERROR_LIST,
        n.HOP_SEQUENCE,
        n.ROUTING_HEADER_LIST,
    ),
    n.BODY: (n.MANIFEST, n.STATUS_REQUEST, n.STATUS_RESPONSE),
    n.MESSAGE_HEADER: (n.SPLIT,),
    n.SPLIT: (n.SPLIT_ID, n.SPLIT_NUMBER),
    n.ROUTING_HEADER_LIST: (),
    n.ROUTING_HEADER: n.ROUTING_FIELDS,
    n.REFERENCE: (n.COMPRESSION, n.STRETCH),
    n.ERROR: (n.MIN_RETRY_SECS,),
    n.DS_REFERENCE: (n.DS_DIGEST_METHOD, n.DS_DIGEST_VALUE),
}
# PHINMS sends two, and its Acknowledgment tells which one counts (`reader`).
_TOLERATED = frozenset({(n.MESSAGE_DATA, n.REF_TO_MESSAGE_ID)})


def _once() -> dict[str, frozenset[str]]:
    """The children of each element that may stand once in it."""
    table = {parent: set(children) for parent, children in _BESIDE.items()}
    for name, (content, _) in STRUCTURE.items():
        if content.startswith("="):
            continue
        parent = f"{{{n.EB}}}{name}"
        table.setdefault(parent, set())
        for word in content.split():
            child = f"{{{n.EB}}}{word.rstrip('?')}"
            if word[-1] not in "*+" and (parent, child) not in _TOLERATED:
                table[parent].add(child)
    return {parent: frozenset(children) for parent, children in table.items()}


_ONCE = _once()


def find_repeated(element: Element, findings: Findings) -> None:
    """Refuse whatever stands more than once in an element, or in one that we read inside it.

    Of two where one may stand, a signature may cover one and a reader take the other, or two
    readers one each.
    """
    once = _ONCE[element.tag]
    seen = set()
    for child in children(element):
        tag = child.tag
        if tag in once:
            if tag in seen:
                findings.twice(local_name(child), place_of(child))
            seen.add(tag)
        if tag in _ONCE and len(child):
            find_repeated(child, findings)


def place_of(element: Element) -> str:
    """Where an element stands, as errors name places."""
    names = [local_name(element)]
    for parent in element.iterancestors():
        if parent.tag == n.ENVELOPE:
            break
        names.append(local_name(parent))
    return "//" + "/".join(reversed(names))
