"""What a signature signs, one ds:Reference at a time: reading, writing, and comparing them.

A signed acknowledgment carries the same elements (ebMS 2.0 §6.3.2.5): the digests of what was
received are the proof of receipt, so both uses share this one writer.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import algorithms, nodeset
from oncewire.wire.security.nodeset import Exclusion

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
    # Each costs a digest, before anybody is known to have signed.
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
    exclusion = nodeset.NOTHING
    if len(steps) == 3:
        if steps[1] != XPATH:
            raise SecurityFailure(f"the envelope's transforms are not the standard's: {steps}")
        exclusion = _read_xpath(transforms[1])
    return (exclusion, *read_canonicalization(transforms[-1]))


def _read_xpath(transform: etree._Element) -> Exclusion:
    # A second expression would narrow the first one.
    children = list(transform)
    if len(children) != 1 or children[0].tag != f"{{{DS}}}XPath" or len(children[0]):
        raise SecurityFailure("the XPath transform holds more than one expression")
    return nodeset.read_xpath(children[0].text or "", children[0].nsmap)


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
        f"<ds:Reference URI={_quoted(reference.uri)}>"
        f"{_transforms_xml(*made)}"
        f'<ds:DigestMethod Algorithm="{algorithms.DIGEST_URIS[reference.digest_name]}"/>'
        f"<ds:DigestValue>{base64.b64encode(reference.digest).decode('ascii')}</ds:DigestValue>"
        "</ds:Reference>"
    )


# Most messages name their parts alike.
_quoted = functools.lru_cache(maxsize=256)(quoteattr)


# The same for message after message.
@functools.lru_cache(maxsize=256)
def _transforms_xml(
    canonicalization: str | None, exclusion: Exclusion | None, prefixes: tuple[str, ...]
) -> str:
    if canonicalization is None:
        return ""
    # The chain as §4.1.3 prints it.
    steps = [f'<ds:Transform Algorithm="{ENVELOPED}"/>']
    if exclusion is not None and exclusion != nodeset.NOTHING:
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
        for actor in (nodeset.NEXT_MSH, nodeset.NEXT)
        if actor in exclusion.actors
    )
    return f'<ds:XPath xmlns:SOAP="{nodeset.SOAP}">not({alternatives})</ds:XPath>'


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
