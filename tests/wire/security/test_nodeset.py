"""The octets we compute are those xmlsec computes, on every document we can think of."""

import email
import hashlib
import hmac
import re
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import references
from oncewire.wire.security.references import EBMS2, NEXT, NEXT_MSH, SOAP, read_xpath
from tests.examples import examples
from tests.wire.security import documents, reference_engine
from tests.wire.security.documents import TO_PARTY

_METHODS = {"c14n": documents.INCLUSIVE, "exc-c14n": documents.EXCLUSIVE}
_CHOICES = st.tuples(
    st.sampled_from(sorted(_METHODS)),
    st.sampled_from(sorted(_METHODS)),
    st.sampled_from(["ds", "", "sig"]),
    st.sampled_from(["", "p q", "SOAP"]),
)


def _same_octets(
    document: bytes,
    method: str,
    info_method: str,
    prefixes: str,
    exclusion: references.Exclusion = EBMS2,
) -> None:
    """Compare digest of the document and MAC of the SignedInfo with the referee's."""
    filled = reference_engine.hmac_sign(document)
    theirs = reference_engine.digest_values(filled)[0]
    mac = reference_engine.signature_value(filled)
    received = etree.tostring(filled.getroottree(), encoding="utf-8")
    root = references.parse(received)
    signature = reference_engine.signature_of(root)
    left_out = exclusion.subtrees(root)
    info = signature[0]
    ours_info = references.element_octets(info, references.standing_alone(info), info_method)
    ours = references.document_octets(root, [*left_out, signature], method, tuple(prefixes.split()))
    assert hashlib.sha256(ours).digest() == theirs
    assert hmac.digest(reference_engine.SECRET, ours_info, "sha256") == mac


def _compare(data: st.DataObject, choice: tuple[str, str, str, str]) -> None:
    method, info_method, prefix, prefixes = choice
    prefixes = prefixes if method == "exc-c14n" else ""
    signature = documents.template(
        documents.XPATH,
        _METHODS[method],
        signature=documents.HMAC_SHA256,
        info_canonical=_METHODS[info_method],
        prefixes=prefixes,
        prefix=prefix,
        binding=f'xmlns:SOAP="{SOAP}"',
    )
    document = data.draw(documents.odd_envelopes(signature))
    try:
        root = references.parse(document)
    except SecurityFailure:
        event("not well-formed")
        return
    event(f"left out: {min(len(EBMS2.subtrees(root)), 3)}")
    _same_octets(document, method, info_method, prefixes)


@pytest.mark.long
@settings(max_examples=examples(300))
@given(st.data(), _CHOICES)
def test_octets_equal_the_referees(data: st.DataObject, choice: tuple[str, str, str, str]) -> None:
    _compare(data, choice)


@pytest.mark.soak
@settings(max_examples=20_000)
@given(st.data(), _CHOICES)
def test_octets_equal_the_referees_for_long(
    data: st.DataObject, choice: tuple[str, str, str, str]
) -> None:
    _compare(data, choice)


@pytest.mark.parametrize("method", sorted(_METHODS))
@pytest.mark.parametrize("xpath", [documents.XPATH, None])
def test_octets_of_every_corpus_envelope_equal_the_referees(
    corpus: Path, method: str, xpath: str | None
) -> None:
    compared = 0
    for path in sorted(corpus.rglob("*")):
        for envelope in _envelopes_in(path):
            signature = documents.template(
                xpath,
                _METHODS[method],
                signature=documents.HMAC_SHA256,
                binding=f'xmlns:SOAP="{SOAP}"',
            )
            exclusion = EBMS2 if xpath else references.NOTHING
            _same_octets(_with_signature(envelope, signature), method, method, "", exclusion)
            compared += 1
    assert compared >= 15


def _envelopes_in(path: Path) -> list[bytes]:
    """The SOAP envelopes a corpus file holds, as bytes; templates with placeholders are left."""
    if path.suffix not in (".xml", ".ebxml", ".eml"):
        return []
    octets = path.read_bytes()
    if path.suffix == ".eml":
        mail = email.message_from_bytes(octets)
        first = next(part for part in mail.walk() if not part.is_multipart())
        octets = first.get_payload(decode=True)
    start, end = octets.find(b"<SOAP"), octets.rfind(b"Envelope>")
    candidate = octets[max(start, 0) : end + len(b"Envelope>")]
    try:
        root = references.parse(candidate)
    except SecurityFailure:
        return []
    return [candidate] if root.find(f"{{{SOAP}}}Header") is not None else []


def _with_signature(envelope: bytes, signature: str) -> bytes:
    """The envelope with the template as the first child of its header, other signatures gone."""
    # On the text: lxml would drop a namespace that the expression alone uses.
    bare = re.sub(rb"<Signature .*</Signature>", b"", envelope, flags=re.DOTALL)
    return re.sub(rb"<[\w:-]*Header[^>]*>", rb"\g<0>" + signature.encode(), bare, count=1)


# --- the expression ------------------------------------------------------------------------------

_NODE = "ancestor-or-self::node()"
_BOTH = {NEXT_MSH, NEXT}


@pytest.mark.parametrize(
    ("text", "scope", "actors"),
    [
        (documents.XPATH, {"SOAP": SOAP}, _BOTH),
        (documents.XPATH.replace("SOAP:", "SOAP-ENV:"), {"SOAP-ENV": SOAP}, _BOTH),
        (documents.XPATH.replace("SOAP:", "soap:"), {"soap": SOAP, "SOAP": "urn:x"}, _BOTH),
        (documents.XPATH.replace('"', "'"), {"SOAP": SOAP}, _BOTH),
        (documents.XPATH.replace(" | ", "|"), {"SOAP": SOAP}, _BOTH),
        (f"\n  {documents.XPATH}\t\n", {"SOAP": SOAP}, _BOTH),
        (
            f"not ( {_NODE} [ @s:actor = \"{NEXT}\" ]\n|\r\n{_NODE}[@t:actor='{NEXT_MSH}'] )",
            {"s": SOAP, "t": SOAP},
            _BOTH,
        ),
        (f'not(ancestor-or-self :: node ( ) [@s:actor="{NEXT_MSH}"])', {"s": SOAP}, {NEXT_MSH}),
        (f'not({_NODE}[@s:actor="{NEXT}"])', {"s": SOAP}, {NEXT}),
    ],
)
def test_spellings_of_the_standard_are_one(
    text: str, scope: dict[str | None, str], actors: set[str]
) -> None:
    assert read_xpath(text, scope).actors == actors


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        (documents.XPATH, {}),
        (documents.XPATH, {"SOAP-ENV": SOAP}),
        (documents.XPATH, {"SOAP": "urn:somebody"}),
        (documents.XPATH.replace("SOAP:actor", "actor"), {None: SOAP}),
        (documents.XPATH.replace(NEXT, TO_PARTY), {"SOAP": SOAP}),
        (documents.XPATH.replace("not(", "("), {"SOAP": SOAP}),
        (f"{documents.XPATH} or true()", {"SOAP": SOAP}),
        (f"{documents.XPATH} and false()", {"SOAP": SOAP}),
        (documents.XPATH.replace("ancestor-or-self", "descendant-or-self"), {"SOAP": SOAP}),
        (documents.XPATH.replace("SOAP:actor", "SOAP:mustUnderstand"), {"SOAP": SOAP}),
        (f'not({_NODE}[@SOAP:actor="{NEXT}"] | self::node()[@SOAP:actor="x"])', {"SOAP": SOAP}),
        ("true()", {"SOAP": SOAP}),
        ("", {"SOAP": SOAP}),
    ],
)
def test_any_other_expression_is_refused(text: str, scope: dict[str | None, str]) -> None:
    with pytest.raises(SecurityFailure):
        read_xpath(text, scope)


def test_the_drafts_leave_out_by_name() -> None:
    assert read_xpath("not(ancestor-or-self::eb:RoutingHeaderList)", {"eb": "urn:x"}).elements == {
        "{urn:x}RoutingHeaderList"
    }
    assert read_xpath("not(ancestor-or-self::RoutingHeader)", {}).elements == {"RoutingHeader"}
    with pytest.raises(SecurityFailure):
        read_xpath("not(ancestor-or-self::eb:RoutingHeaderList)", {})


# --- what cannot be signed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"<a>",
        b"<!DOCTYPE a><a/>",
        b'<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>',
        b"<a>&undefined;</a>",
        b"\x00\x01",
    ],
)
def test_what_is_no_plain_document_is_refused(document: bytes) -> None:
    with pytest.raises(SecurityFailure):
        references.parse(document)


def test_a_relative_namespace_has_no_canonical_form() -> None:
    root = references.parse(b'<a xmlns="relative/name"/>')
    with pytest.raises(SecurityFailure):
        references.document_octets(root, [], "c14n")


def test_text_behind_what_is_left_out_stays() -> None:
    root = references.parse(b"<a>1<b/>2<!-- c -->3<b/>4<c/>5<b/>6</a>")
    left_out = list(root.iter("b"))
    assert references.document_octets(root, left_out, "c14n") == b"<a>1234<c></c>56</a>"


def test_only_the_topmost_of_nested_elements_is_left_out() -> None:
    inner = f'<b s:actor="{NEXT}"><c/><d s:actor="{NEXT_MSH}"/></b>'
    root = references.parse(f'<a xmlns:s="{SOAP}">{inner}</a>'.encode())
    assert [element.tag for element in EBMS2.subtrees(root)] == ["b"]


def test_when_the_root_is_left_out_nothing_is_left() -> None:
    root = references.parse(f'<a xmlns:s="{SOAP}" s:actor="{NEXT}"><b/></a>'.encode())
    assert references.document_octets(root, EBMS2.subtrees(root), "c14n") == b""
