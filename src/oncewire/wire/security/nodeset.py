"""Which octets a signature covers: the node-set of the ebMS 2.0 transform, computed directly.

The standard's transform (§4.1.3) is a constant: take the document without comments, take away this
signature, take away every subtree whose root carries `SOAP:actor` next or nextMSH, canonicalise the
rest. An XPath engine evaluates that expression once for every node; here the subtrees are removed
and the whole document is canonicalised once, which gives the same octets because what is left
always holds all its own ancestors: no namespace and no `xml:` attribute is ever lost on the way.

Drafts of 0.9x have the same need, the RoutingHeaderList changes at every hop; their transform
leaves out elements by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from lxml import etree

from oncewire.errors import SecurityFailure

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
EBMS2_XPATH = (
    f'not(ancestor-or-self::node()[@SOAP:actor="{NEXT_MSH}"] | '
    f'ancestor-or-self::node()[@SOAP:actor="{NEXT}"])'
)
"""The standard's own expression; `SOAP` is bound on the ds:XPath element that carries it."""


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
        _detach(element)
    return _canonical(root.getroottree(), method, prefixes)


def _detach(element: etree._Element) -> None:
    """Take a subtree out and leave the text behind it in place: that text is still signed."""
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
