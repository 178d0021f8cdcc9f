"""What a signature signs, one ds:Reference at a time: reading, writing, and comparing them.

A signed acknowledgment carries the same elements (ebMS 2.0 §6.3.2.5): the digests of what was
received are the proof of receipt, so both uses share this one writer.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import algorithms

if TYPE_CHECKING:
    from oncewire.wire.parcel import Received

# Which octets a signature covers: the node-set of the ebMS 2.0 transform, computed directly.
#
# The standard's transform (§4.1.3) is a constant: take the document without comments, take away
# this signature, take away every subtree whose root carries `SOAP:actor` next or nextMSH,
# canonicalise the rest. An XPath engine evaluates that expression once for every node; here the
# subtrees are removed and the whole document is canonicalised once, which gives the same octets
# because what is left always holds all its own ancestors: no namespace and no `xml:` attribute is
# ever lost on the way.
#
# Drafts of 0.9x have the same need, the RoutingHeaderList changes at every hop; their transform
# leaves out elements by name.


SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
NEXT_MSH = "urn:oasis:names:tc:ebxml-msg:actor:nextMSH"
NEXT = "http://schemas.xmlsoap.org/soap/actor/next"
ACTOR = f"{{{SOAP}}}actor"
_WITH_ACTOR = etree.XPath("descendant-or-self::*[@SOAP:actor]", namespaces={"SOAP": SOAP})
_XML = "{http://www.w3.org/XML/1998/namespace}"

# Nothing may be fetched, expanded or dropped: what is parsed is what was received.
_PARSER = etree.XMLParser(
    resolve_entities=False,
    no_network=True,
    load_dtd=False,
    dtd_validation=False,
    remove_comments=False,
    remove_pis=False,
    remove_blank_text=False,
    strip_cdata=False,
    huge_tree=False,
    recover=False,
)


def parse(octets: bytes) -> etree._Element:
    """The tree of the received bytes, or SecurityFailure; a document type is refused (SOAP §3)."""
    try:
        root = etree.fromstring(octets, _PARSER)
    except (etree.XMLSyntaxError, ValueError) as trouble:
        # ValueError: lxml's own word for text it cannot take, such as an encoding it lacks.
        raise SecurityFailure(f"the signed envelope is not well-formed: {trouble}") from trouble
    if root.getroottree().docinfo.internalDTD is not None:
        raise SecurityFailure("the signed envelope has a document type declaration")
    return root


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What a transform leaves out: subtrees whose root has one of these actors or names."""

    actors: frozenset[str] = frozenset()
    elements: frozenset[str] = frozenset()

    def subtrees(self, root: etree._Element) -> list[etree._Element]:
        """The topmost excluded elements in document order; what lies below them goes with them."""
        # By name in the drafts, where no actor says whom a block is for.
        if self.elements:
            found = list(root.iter(*sorted(self.elements)))
        elif self.actors:
            bearers: list[etree._Element] = cast("list[Any]", _WITH_ACTOR(root))
            found = [element for element in bearers if element.get(ACTOR) in self.actors]
        else:
            return []
        # One inside another would be taken out twice, and its tail be lost with the outer one.
        excluded = set(found)
        return [
            element
            for element in found
            if not any(ancestor in excluded for ancestor in element.iterancestors())
        ]


NOTHING = Exclusion()
# §4.1.3 leaves out both: SyncReply has SOAP's actor, the hop's own blocks the ebXML one.
EBMS2 = Exclusion(actors=frozenset({NEXT_MSH, NEXT}))


# --- recognising the expression ------------------------------------------------------------------

_WS = r"[ \t\r\n]*"
_NCNAME = r"[A-Za-z_][\w.\-]*"
# Spaces, quotes and the prefix are the writer's choice in XPath 1.0; everything else must be the
# standard's, for what is not recognised here would have to be run.
_BY_ACTOR = (
    rf"ancestor-or-self{_WS}::{_WS}node{_WS}\({_WS}\){_WS}"
    rf"\[{_WS}@{_WS}({_NCNAME}):actor{_WS}={_WS}(\"[^\"]*\"|'[^']*'){_WS}\]"
)
_ACTORS_XPATH = re.compile(
    rf"{_WS}not{_WS}\({_WS}{_BY_ACTOR}{_WS}(?:\|{_WS}{_BY_ACTOR}{_WS})?\){_WS}"
)
_ELEMENT_XPATH = re.compile(
    rf"{_WS}not{_WS}\({_WS}ancestor-or-self{_WS}::{_WS}(?:({_NCNAME}):)?({_NCNAME}){_WS}\){_WS}"
)


def read_xpath(text: str, scope: Mapping[str | None, str]) -> Exclusion:
    """What an XPath transform leaves out, if it is the standard's in any spelling; else refused.

    `scope` holds the prefixes in force at the ds:XPath element, because that is where the
    expression's prefixes get their meaning. A prefix that is unbound there, or bound to anything
    but SOAP, would select other nodes than the reader believes.
    """
    # One of the two may be missing: then more is signed, not less.
    actors = _ACTORS_XPATH.fullmatch(text)
    if actors is not None:
        first, first_actor, second, second_actor = actors.groups()
        found = {_actor(first, first_actor, scope)}
        if second is not None:
            found.add(_actor(second, second_actor, scope))
        return Exclusion(actors=frozenset(found))
    element = _ELEMENT_XPATH.fullmatch(text)
    if element is not None:
        prefix, name = element.groups()
        if prefix is None:
            return Exclusion(elements=frozenset({name}))
        return Exclusion(elements=frozenset({f"{{{_bound(prefix, scope)}}}{name}"}))
    raise SecurityFailure(f"the XPath transform is not the standard's: {text[:200]!r}")


def _actor(prefix: str, literal: str, scope: Mapping[str | None, str]) -> str:
    namespace = _bound(prefix, scope)
    if namespace != SOAP:
        raise SecurityFailure(
            f"prefix {prefix!r} of the XPath transform means {namespace[:120]!r}, not SOAP"
        )
    # Any other actor would let a signer leave out what its receiver believes signed.
    actor = literal[1:-1]
    if actor not in EBMS2.actors:
        raise SecurityFailure(f"the XPath transform leaves out actor {actor[:120]!r}")
    return actor


def _bound(prefix: str, scope: Mapping[str | None, str]) -> str:
    namespace = scope.get(prefix)
    if not namespace:
        raise SecurityFailure(
            f"prefix {prefix!r} of the XPath transform is not bound where the expression stands",
            remedy="bind it on the ds:XPath element",
        )
    return namespace


# --- canonical octets ----------------------------------------------------------------------------


def document_octets(
    root: etree._Element,
    left_out: Iterable[etree._Element],
    method: str,
    prefixes: tuple[str, ...] = (),
) -> bytes:
    """The canonical octets of the document without the given subtrees; takes the tree apart.

    The whole document is canonicalised, because lxml loses the namespace context of a part.
    Comments go whatever the method says: `URI=""` selects a node-set without them.
    """
    for element in left_out:
        # An envelope that is itself addressed to a hop has no signed octets at all;
        # `check_left_out` refuses it.
        if element is root:
            return b""
        # Take a subtree out and leave the text behind it in place: that text is still signed.
        parent = element.getparent()
        if parent is None:
            raise SecurityFailure("an excluded element has no parent")
        if element.tail:
            before = element.getprevious()
            if before is None:
                parent.text = (parent.text or "") + element.tail
            else:
                before.tail = (before.tail or "") + element.tail
            element.tail = None
        parent.remove(element)
    return _canonical(root.getroottree(), method, prefixes)


def standing_alone(element: etree._Element) -> etree._Element:
    """A copy of the element as a root that keeps the namespaces in force where it stands.

    lxml writes every namespace in scope on the top element of what it serialises; reading that
    back gives the context as the document's own text, with no prefix exchanged for another.
    """
    return etree.fromstring(etree.tostring(element, encoding="utf-8", with_tail=False), _PARSER)


def element_octets(
    element: etree._Element, alone: etree._Element, method: str, prefixes: tuple[str, ...] = ()
) -> bytes:
    """The canonical octets of one element in its document context; `alone` is its standing copy.

    Canonical XML 1.0 §2.4: the topmost element also shows the `xml:` attributes of its ancestors.
    Exclusive canonicalization drops both those and the unused namespaces by itself.
    """
    # The inclusive method alone inherits them; exclusive C14N was made so that a moved element
    # keeps its octets.
    if method == "c14n":
        for ancestor in element.iterancestors():
            for name, value in ancestor.items():
                if str(name).startswith(_XML) and alone.get(name) is None:
                    alone.set(name, value)
    return _canonical(alone.getroottree(), method, prefixes)


def _canonical(tree: etree._ElementTree, method: str, prefixes: tuple[str, ...]) -> bytes:
    try:
        return etree.tostring(
            tree,
            method="c14n",
            exclusive=method == "exc-c14n",
            inclusive_ns_prefixes=list(prefixes) or None,
            # SignedInfo has none (the reader refuses them), and URI="" leaves them out (XML
            # Signature §4.3.3.3).
            with_comments=False,
        )
    except (etree.C14NError, ValueError) as trouble:
        # A relative namespace name has no canonical form (Canonical XML §1.3).
        raise SecurityFailure(f"the document has no canonical form: {trouble}") from trouble


DS = "http://www.w3.org/2000/09/xmldsig#"
ENVELOPED = f"{DS}enveloped-signature"
XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"
EXC_C14N = algorithms.CANONICAL_URIS["exc-c14n"]

# One per part and one for the envelope; far above any real message, far below an attack on memory.
MAX_REFERENCES = 1_000


@dataclass(frozen=True, slots=True)
class PartDigests:
    """A MIME part as the signature sees it: its Content-ID and its content's digests by name.

    The content itself stays outside, so that a part of any size can be digested while it streams.
    """

    content_id: str
    digests: Mapping[str, bytes]

    @classmethod
    def of(cls, content_id: str, content: bytes, *names: str) -> PartDigests:
        """Digest a part that is at hand, with each of the named algorithms."""
        return cls(content_id, {name: algorithms.digest(name, content) for name in names})


@dataclass(frozen=True, slots=True)
class SignedReference:
    """One ds:Reference: what it names, how its octets are made, and their digest."""

    uri: str
    digest_name: str
    digest: bytes
    # Only the reference to the envelope (`uri` empty) has these: what it leaves out and how the
    # rest becomes octets. None stands for a reference without transforms, as every part has.
    exclusion: Exclusion | None = None
    canonicalization: str | None = None
    prefixes: tuple[str, ...] = ()

    @property
    def content_id(self) -> str | None:
        """The Content-ID of the part it names; None for the envelope itself."""
        return content_id_of(self.uri)

    def same_digest(self, other: bytes | None) -> bool:
        """Whether the digest equals the other, compared in constant time."""
        return other is not None and hmac.compare_digest(self.digest, other)


def content_id_of(uri: str) -> str | None:
    """The Content-ID a `cid:` URI names (RFC 2392: percent signs decoded); None for other URIs."""
    if uri[:4].lower() != "cid:":
        return None
    # The manifest and the signature may escape differently and mean the same part.
    return unquote(uri[4:]) if "%" in uri else uri[4:]


def bare_content_id(value: str) -> str:
    """A Content-ID header's value without the angle brackets around it."""
    value = value.strip()
    return value[1:-1] if value.startswith("<") and value.endswith(">") else value


# --- reading -------------------------------------------------------------------------------------


def read_references(parent: etree._Element) -> tuple[SignedReference, ...]:
    """Every ds:Reference of a SignedInfo, exactly as the standard has them or refused."""
    found = parent.findall(f"{{{DS}}}Reference")
    # Each costs a digest, before the signer is known.
    if len(found) > MAX_REFERENCES:
        raise SecurityFailure(f"{len(found)} signed references, more than {MAX_REFERENCES}")
    return tuple(read_reference(element) for element in found)


def read_reference(element: etree._Element) -> SignedReference:
    """One ds:Reference, with nothing in it that the standard does not put there."""
    uri = element.get("URI")
    # XML Signature §4.3.3.1 lets one be left out, for an application that knows what is meant. We
    # do not.
    if uri is None:
        raise SecurityFailure("a signed reference has no URI")
    children = list(element)
    names = [child.tag for child in children]
    # No other child, no other order: what is not understood here could mean that something else was
    # signed.
    if names[-2:] != [f"{{{DS}}}DigestMethod", f"{{{DS}}}DigestValue"] or names[:-2] not in (
        [],
        [f"{{{DS}}}Transforms"],
    ):
        raise SecurityFailure(f"the signed reference to {uri[:120]!r} has an unexpected form")
    transforms = list(children[0]) if len(children) == 3 else []
    digest_name = algorithms.digest_name(children[-2].get("Algorithm", ""))
    digest = decode_base64(children[-1], "DigestValue")
    if uri == "":
        exclusion, canonicalization, prefixes = _envelope_transforms(transforms)
        return SignedReference(uri, digest_name, digest, exclusion, canonicalization, prefixes)
    # A fragment or an http: URL: the first invites wrapping, the second a fetch on a stranger's
    # behalf.
    if content_id_of(uri) is None:
        raise SecurityFailure(f"the signature refers to {uri[:120]!r}: neither envelope nor part")
    # §4.1.3 asks for none on a payload. One that changes the octets signs something that was not
    # sent.
    if transforms:
        raise SecurityFailure(f"the signed reference to {uri[:120]!r} transforms the part")
    return SignedReference(uri, digest_name, digest)


def _envelope_transforms(
    transforms: Sequence[etree._Element],
) -> tuple[Exclusion, str, tuple[str, ...]]:
    """The standard's chain: enveloped signature, XPath, canonicalization.

    Without the XPath step nothing is left out, so more is signed than the standard asks; partners
    do send their acknowledgments that way.
    """
    # The signature goes first, or its own value would be in what it signs; octets come last.
    steps = [
        step.get("Algorithm", "") if step.tag == f"{{{DS}}}Transform" else "" for step in transforms
    ]
    if len(steps) not in (2, 3) or steps[0] != ENVELOPED or len(transforms[0]):
        raise SecurityFailure(
            f"the envelope's transforms are not the standard's: {steps[:6]}",
            remedy="sign with enveloped-signature, the ebMS XPath and a canonicalization",
        )
    exclusion = NOTHING
    if len(steps) == 3:
        if steps[1] != XPATH:
            raise SecurityFailure(f"the envelope's transforms are not the standard's: {steps}")
        # A second expression would narrow the first one.
        children = list(transforms[1])
        if len(children) != 1 or children[0].tag != f"{{{DS}}}XPath" or len(children[0]):
            raise SecurityFailure("the XPath transform holds more than one expression")
        exclusion = read_xpath(children[0].text or "", children[0].nsmap)
    return (exclusion, *read_canonicalization(transforms[-1]))


def read_canonicalization(element: etree._Element) -> tuple[str, tuple[str, ...]]:
    """The method an element names, and the prefixes that exclusive C14N is to treat fully."""
    method = algorithms.canonical_name(element.get("Algorithm", ""))
    children = list(element)
    # Without a list, exclusive C14N treats every prefix as its use shows.
    if not children:
        return method, ()
    inner = children[0]
    if (
        method != "exc-c14n"
        or len(children) != 1
        or inner.tag != f"{{{EXC_C14N}}}InclusiveNamespaces"
    ):
        raise SecurityFailure("a canonicalization method has unexpected parameters")
    prefixes = tuple(inner.get("PrefixList", "").split())
    if "#default" in prefixes:
        # lxml drops it on its way to libxml2, so the octets would silently be others.
        raise SecurityFailure("a canonicalization names the default namespace in its prefix list")
    return method, prefixes


def decode_base64(element: etree._Element, what: str) -> bytes:
    """The bytes an element's text stands for; only white space may be added to base64."""
    # Comments are elements to lxml: a digest is one unbroken text.
    if len(element):
        raise SecurityFailure(f"{what} holds more than text")
    try:
        return base64.b64decode("".join((element.text or "").split()), validate=True)
    except (binascii.Error, ValueError) as trouble:
        raise SecurityFailure(f"{what} is not base64") from trouble


# --- writing -------------------------------------------------------------------------------------


def reference_xml(reference: SignedReference) -> str:
    """The ds:Reference as text; `ds` must be bound around it, everything else it binds itself."""
    made = (reference.canonicalization, reference.exclusion, reference.prefixes)
    return (
        f"<ds:Reference URI={quoteattr(reference.uri)}>"
        f"{_transforms_xml(*made)}"
        f'<ds:DigestMethod Algorithm="{algorithms.DIGEST_URIS[reference.digest_name]}"/>'
        f"<ds:DigestValue>{base64.b64encode(reference.digest).decode('ascii')}</ds:DigestValue>"
        "</ds:Reference>"
    )


def _transforms_xml(
    canonicalization: str | None, exclusion: Exclusion | None, prefixes: tuple[str, ...]
) -> str:
    if canonicalization is None:
        return ""
    # The chain as §4.1.3 prints it.
    steps = [f'<ds:Transform Algorithm="{ENVELOPED}"/>']
    if exclusion is not None and exclusion != NOTHING:
        steps.append(f'<ds:Transform Algorithm="{XPATH}">{_xpath_xml(exclusion)}</ds:Transform>')
    method = algorithms.CANONICAL_URIS[canonicalization]
    inner = ""
    if prefixes:
        listed = quoteattr(" ".join(prefixes))
        inner = f'<ec:InclusiveNamespaces xmlns:ec="{EXC_C14N}" PrefixList={listed}/>'
    steps.append(f'<ds:Transform Algorithm="{method}">{inner}</ds:Transform>')
    return f"<ds:Transforms>{''.join(steps)}</ds:Transforms>"


def _xpath_xml(exclusion: Exclusion) -> str:
    """The expression with its prefix bound on ds:XPath itself, so that a copy keeps its meaning."""
    # The drafts' one name; MS 1.0 left out its TraceHeaderList the same way.
    if exclusion.elements:
        (name,) = exclusion.elements
        namespace, _, local = name[1:].rpartition("}") if name[0] == "{" else ("", "", name)
        if not namespace:
            return f"<ds:XPath>not(ancestor-or-self::{escape(local)})</ds:XPath>"
        return (
            f"<ds:XPath xmlns:eb={quoteattr(namespace)}>"
            f"not(ancestor-or-self::eb:{escape(local)})</ds:XPath>"
        )
    alternatives = " | ".join(
        f'ancestor-or-self::node()[@SOAP:actor="{actor}"]'
        for actor in (NEXT_MSH, NEXT)
        if actor in exclusion.actors
    )
    return f'<ds:XPath xmlns:SOAP="{SOAP}">not({alternatives})</ds:XPath>'


# --- signed acknowledgments ----------------------------------------------------------------------


def acknowledged(uri: str, digest_method: str, digest_value: bytes) -> SignedReference:
    """A reference of an Acknowledgment that was read elsewhere, from its plain values."""
    return SignedReference(uri, algorithms.digest_name(digest_method), digest_value)


def check_acknowledged(
    acknowledged: Sequence[SignedReference], sent: Sequence[SignedReference]
) -> None:
    """Refuse an acknowledgment whose digests are not those of the message it claims to have got.

    `acknowledged` comes from the verified view of the acknowledgment, `sent` from the signature of
    what was sent (or from `computed_references` where it was sent unsigned). How the octets were
    made is not compared: equal digests of equal kind say that the same octets were seen.
    """
    if not acknowledged:
        raise SecurityFailure(
            "the signed acknowledgment carries no digests of what it acknowledges",
            location="//Header/Acknowledgment",
        )
    # Both ways: a digest too few leaves a part unproven, one too many is of another message.
    theirs = _by_target(acknowledged)
    ours = _by_target(sent)
    for target, reference in ours.items():
        other = theirs.pop(target, None)
        what = "the envelope" if target is None else f"part {target[:120]!r}"
        if other is None:
            problem = f"the acknowledgment says nothing about {what}"
        elif other.digest_name != reference.digest_name:
            problem = f"the acknowledgment digests {what} with {other.digest_name}"
        elif not reference.same_digest(other.digest):
            problem = f"the acknowledgment's digest of {what} is not that of what was sent"
        else:
            continue
        raise SecurityFailure(problem, location="//Header/Acknowledgment/Reference")
    if theirs:
        raise SecurityFailure(
            "the acknowledgment acknowledges parts that were not sent",
            location="//Header/Acknowledgment/Reference",
        )


def _by_target(references: Sequence[SignedReference]) -> dict[str | None, SignedReference]:
    """References by the part they name (None: the envelope), each target once."""
    found: dict[str | None, SignedReference] = {}
    for reference in references:
        target = reference.content_id
        if target is None and reference.uri:
            raise SecurityFailure(f"{reference.uri[:120]!r} is neither the envelope nor a part")
        if target in found:
            raise SecurityFailure(f"{reference.uri[:120]!r} is referred to twice")
        found[target] = reference
    return found


# The digests of received parts that a signature will ask for, kept while the parts pass by.


USUAL = "sha256"
"""Every payload's SHA-256 is known anyway; only others must be asked for."""

_OTHERS = tuple(
    (name, uri.encode() + b'"') for name, uri in algorithms.DIGEST_URIS.items() if name != USUAL
)


def digest_names(envelope: bytes) -> tuple[str, ...]:
    """Digest algorithms other than SHA-256 that the header names, by their short names."""
    quoted = envelope.replace(b"'", b'"')
    # By text search: what is found too much costs a digest, and the signature's reader judges
    # exactly.
    return tuple(name for name, uri in _OTHERS if uri in quoted)


def signature_parts(received: Received) -> tuple[PartDigests, ...]:
    """Each payload as the signature's modules want it."""
    others = digest_names(received.envelope) if received.signed else ()
    parts = []
    for payload in received.message.payloads:
        digests = {USUAL: bytes.fromhex(payload.digest)}
        if payload.data is not None:
            digests.update((name, algorithms.digest(name, payload.data)) for name in others)
        digests |= {
            name: digest
            for content_id, name, digest in received.extra_digests
            if content_id == payload.content_id
        }
        parts.append(PartDigests(payload.content_id, digests))
    return tuple(parts)
