"""What a template says of a signature is what its tree says, and never more."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.errors import SecurityFailure
from oncewire.wire.security import references, signature
from oncewire.wire.security.algorithms import AlgorithmPolicy
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice, Verified
from oncewire.wire.templates.envelope import LATEST, SignatureTemplates
from oncewire.wire.templates.slotted import (
    DOCUMENT_MAX,
    Template,
    TemplateCache,
    octets_template,
    slotted,
)
from tests.wire.security import documents, forger, keys, reference_engine
from tests.wire.security.documents import PART, PART_ID

_EC = SigningChoice("ecdsa-sha256")
_HOPS = documents.HOP_BLOCKS
ALPHA = Trust((keys.alpha().certificate,))


def _part(content: bytes = PART, content_id: str = PART_ID) -> PartDigests:
    return PartDigests.of(content_id, content, "sha256")


def _signed(number: int, header_extra: str = _HOPS, part_id: str = PART_ID) -> bytes:
    """The message of that number; they differ in several texts."""
    who, given = keys.alpha(), documents.envelope(header_extra, part_id, f" {number}")
    given = given.replace(b"m-1001@", b"m-%d@" % number)
    parts = [_part(content_id=part_id)]
    return signature.sign(given, parts, who.key, who.certificate, _EC).envelope


def _taught(*envelopes: bytes, part_id: str = PART_ID) -> SignatureTemplates:
    templates = SignatureTemplates()
    for envelope in envelopes:
        templates.verify("alpha", envelope, [_part(content_id=part_id)], ALPHA, keys.NOW)
    assert len(templates) == len(envelopes)
    return templates


def _verdict(verify: Callable[[], Verified]) -> Verified | str:
    try:
        return verify()
    except SecurityFailure as failure:
        return failure.problem


def _same(
    templates: SignatureTemplates, envelope: bytes, parts: list[PartDigests]
) -> Verified | str:
    """What is said of an envelope, which must be what is said without anything learned."""
    found = _verdict(lambda: templates.verify("alpha", envelope, parts, ALPHA, keys.NOW))
    full = _verdict(lambda: signature.verify_signature(envelope, parts, ALPHA, keys.NOW))
    assert found == full, envelope
    return found


@pytest.mark.parametrize("header_extra", ["", _HOPS])
def test_the_second_of_a_kind_is_checked_without_its_tree(
    header_extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates, second = _taught(_signed(1, header_extra)), _signed(2, header_extra)
    full = signature.verify_signature(second, [_part()], ALPHA, keys.NOW)
    monkeypatch.setattr(references, "parse", None)
    assert templates.verify("alpha", second, [_part()], ALPHA, keys.NOW) == full
    assert templates.references(second) == full.references
    assert templates.hits == 1
    assert b"m-2@alpha.example" in full.octets


def test_another_name_of_a_part_is_of_the_same_kind() -> None:
    templates = _taught(_signed(1))
    other = _signed(2, part_id="order-2@alpha.example")
    found = _same(templates, other, [_part(content_id="order-2@alpha.example")])
    assert isinstance(found, Verified)
    assert templates.hits == 1
    # And so is one that names a part in the header alone, or not at all.
    assert (
        _same(templates, other, [_part()]) == "signed part 'order-2@alpha.example' did not arrive"
    )


def test_every_check_is_made_of_what_is_known_too() -> None:
    templates, second = _taught(_signed(1)), _signed(2)
    changed = [
        (second.replace(b"m-2@", b"m-3@"), [_part()]),
        (second.replace(b"<ds:SignatureValue>", b"<ds:SignatureValue>AAAA"), [_part()]),
        (second.replace(b"seven boxes", b"eight boxes"), [_part()]),
        (second, [_part(PART + b" ")]),
        (second, [_part(), _part()]),
        (second, []),
    ]
    for envelope, parts in changed:
        assert isinstance(_same(templates, envelope, parts), str)
    assert isinstance(_same(templates, second, [_part(), _part(content_id="more")]), Verified)
    late = keys.NOW + 400 * 24 * 3600 * 1_000_000
    strict = AlgorithmPolicy(frozenset({"rsa-sha256"}))
    mallory = Trust((keys.mallory().certificate,))
    with pytest.raises(SecurityFailure, match="expired"):
        templates.verify("alpha", second, [_part()], ALPHA, late)
    with pytest.raises(SecurityFailure, match="not allowed"):
        templates.verify("alpha", second, [_part()], ALPHA, keys.NOW, strict)
    with pytest.raises(SecurityFailure, match="does not name"):
        templates.verify("alpha", second, [_part()], mallory, keys.NOW)


def test_how_something_is_signed_is_no_text_that_may_differ() -> None:
    """The expression of the transform, and whose certificate it is."""
    templates, second = _taught(_signed(1)), _signed(2)
    before = templates.hits
    for old, new in (
        (b"not(ancestor", b"not( ancestor"),
        (b"<ds:X509Certificate>M", b"<ds:X509Certificate>N"),
    ):
        changed = second.replace(old, new, 1)
        assert isinstance(_same(templates, changed, [_part()]), str)
    assert templates.hits == before


def test_what_proves_nothing_teaches_nothing_and_helps_nobody_else() -> None:
    templates, good = SignatureTemplates(), _signed(1)
    with pytest.raises(SecurityFailure):
        templates.verify("alpha", good.replace(b"seven", b"eight"), [_part()], ALPHA, keys.NOW)
    assert len(templates) == 0
    templates.verify("alpha", good, [_part()], ALPHA, keys.NOW)
    assert len(templates) == 1
    templates.verify("beta", good, [_part()], ALPHA, keys.NOW)
    assert templates.hits == 0


def test_what_was_signed_is_remembered_of_the_last_ones() -> None:
    templates, who = SignatureTemplates(), keys.alpha()
    made = []
    for number in range(LATEST + 1):
        given = documents.envelope("", PART_ID, f" {number}")
        made.append(templates.sign(given, [_part()], who.key, who.certificate, _EC))
    assert templates.references(made[0].envelope) is None
    for signed in (made[1], made[LATEST]):
        assert templates.references(signed.envelope) == signed.references


def test_who_never_signs_alike_is_seldom_learned_from() -> None:
    templates = SignatureTemplates()
    for number in range(9):
        odd = _signed(1, f"<x:e{number} xmlns:x='urn:x'/>")
        templates.verify("alpha", odd, [_part()], ALPHA, keys.NOW)
    assert len(templates) == 4, "the first, the second, the fourth and the eighth"


@pytest.mark.long
def test_no_forgery_is_accepted_by_what_was_learned() -> None:
    goods = forger.good_messages()
    templates, parts = SignatureTemplates(), [forger.good_part()]
    for _ in range(8):
        for envelope in goods.values():
            templates.verify("alpha", envelope, parts, ALPHA, keys.NOW)
    hits = templates.hits
    assert len(templates) >= 2
    made = forger.forgeries(20260101)
    believed = [
        forgery.how
        for forgery in made
        if not isinstance(_same(templates, forgery.envelope, list(forgery.parts)), str)
    ]
    assert len(made) >= 1_000
    assert believed == []
    assert templates.hits == hits


@pytest.mark.long
def test_a_bit_that_flips_is_seen_by_what_was_learned() -> None:
    first = _signed(1)
    templates = _taught(first)
    for byte in range(len(first)):
        flipped = bytearray(first)
        flipped[byte] ^= 1 << byte % 8
        _same(templates, bytes(flipped), [_part()])
    assert templates.hits < 20


# --- slots ------------------------------------------------------------------------------------

_SYNTAX = re.compile(rb"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>|&#?\w+;", re.DOTALL)
_TEXTS = st.text(
    st.characters(codec="ascii", min_codepoint=33, exclude_characters="<>&\x7f"), min_size=1
)


def _octets(method: str) -> Callable[[bytes], bytes]:
    def made(document: bytes) -> bytes:
        root = references.parse(document)
        return references.document_octets(root, references.EBMS2.subtrees(root), method)

    return made


@settings(max_examples=40)
@given(document=st.binary() | documents.odd_envelopes("").map(bytes))
def test_a_document_is_put_together_again(document: bytes) -> None:
    if b"\x00" not in document and b"\x01" not in document:
        assert slotted(document).document == document


@pytest.mark.long
@pytest.mark.parametrize("method", ["c14n", "exc-c14n"])
@settings(max_examples=100)
@given(data=st.data())
def test_an_odd_document_with_other_texts_has_the_octets_of_its_tree(
    data: st.DataObject, method: str
) -> None:
    drawn = data.draw(documents.odd_envelopes(""))
    begin, end = drawn.index(b"<SOAP:Envelope"), drawn.rindex(b">") + 1
    # Every second one without what no pattern is made of, and with text in its place.
    if data.draw(st.booleans()):
        drawn = _SYNTAX.sub(
            b"text", drawn[begin:end].replace(b"</SOAP:Envelope>", b"end</SOAP:Envelope>")
        )
    document = slotted(drawn)
    try:
        pattern = octets_template(document, _octets(method))
    except SecurityFailure:
        return
    if pattern is None:
        return
    texts = [data.draw(_TEXTS).encode() for _ in range(document.texts)]
    other = document._replace(slots=[*texts, *document.slots[document.texts :]])
    assert slotted(other.document) == other
    assert pattern.filled(other.slots) == _octets(method)(other.document)


def test_texts_of_every_kind_are_copied() -> None:
    document = slotted(b'<a b="1>2">x<c/>y<d>z</d> w </a>')
    assert document.slots == [b"x", b"y", b"z"]
    pattern = octets_template(document, _octets("c14n"))
    assert pattern is not None
    assert pattern.filled([b"1", b"2 \n\t'\"=]", b"3"]) == (
        b'<a b="1>2">1<c></c>2 \n\t\'"=]<d>3</d> w </a>'
    )


@pytest.mark.parametrize(
    "document",
    [
        b"<a>x<!-- > y < --></a>",
        b"<a>x<![CDATA[> y <]]></a>",
        b"<a>x<?z > y <?></a>",
        b'<a xmlns:href="cid:x">x</a>',
        b'<a other="cid:x">x</a>',
        b'<?xml version="1.0" encoding="ISO-8859-1"?><a>x</a>',
        b"\xff\xfe<\x00a\x00>\x00x\x00<\x00/\x00a\x00>\x00",
        b"<a>oncewireslot0000</a>",
        b"<a>x" + b"y" * DOCUMENT_MAX + b"</a>",
    ],
)
def test_what_no_pattern_is_made_of(document: bytes) -> None:
    assert octets_template(slotted(document), _octets("c14n")) is None


@pytest.mark.parametrize("text", [b"&amp;", b"\r", b"\xc3\xa4", b" x", b"a>", b"\x00"])
def test_what_is_no_plain_text_is_markup(text: bytes) -> None:
    assert slotted(b"<a>" + text + b"</a>").slots == []


def test_bytes_that_look_like_slots_are_told_from_them() -> None:
    one, other = slotted(b"<a>x</a><b>y</b>"), slotted(b"<a\x00/a><b>y</b>")
    assert one.markup == other.markup
    assert one.key != other.key


def test_the_name_of_each_slot_is_that_of_its_element() -> None:
    document = slotted(b'<a><x:B c="d">1</x:B>2<e/>3</a><f g="cid:4" URI="cid:5">6</f>')
    assert list(zip(document.names, document.slots, strict=True)) == [
        (b"b", b"1"), (b"", b"2"), (b"", b"3"), (b"f", b"6"), (b"g", b"4"), (b"URI", b"5"),
    ]  # fmt: skip


def test_the_cache_is_bounded() -> None:
    cache: TemplateCache[Template] = TemplateCache(most=5, of_one=3)
    kept: dict[str, Template] = {}
    for owner in "abc":
        for number in range(9):
            kept[f"{owner}{number}"] = Template()
            cache.keep(owner, f"{owner}{number}", kept[f"{owner}{number}"])
            assert len(cache) <= 5
    # Each has its last ones, but for the owner who came first.
    assert [key for key in kept if key in cache.by_key] == ["b7", "b8", "c6", "c7", "c8"]
    assert cache.by_key["c8"] == (kept["c8"],)


# --- signing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["c14n", "exc-c14n"])
def test_what_is_signed_by_a_template_is_what_would_be_signed(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A key whose signatures are the same each time.
    who, choice = keys.alpha("rsa"), SigningChoice(canonicalization=method)
    templates = SignatureTemplates()

    def sign(number: int, sign: Callable[..., signature.Signed]) -> signature.Signed:
        name = f"order-{number}@alpha.example"
        given = documents.envelope(_HOPS, name, f" {number}")
        parts = [_part(b"%d" % number, name), _part(content_id="more")]
        return sign(given, parts, who.key, who.certificate, choice)

    assert sign(1, templates.sign) == sign(1, signature.sign)
    assert len(templates) == 2
    second = sign(2, signature.sign)
    parts = {"cid:order-2@alpha.example": b"2", "cid:more": PART}
    assert reference_engine.verifies(second.envelope, who.certificate_pem, parts)
    monkeypatch.setattr(references, "parse", None)
    assert sign(2, templates.sign) == second


def test_a_template_is_no_way_around_what_may_be_signed() -> None:
    who, templates = keys.alpha(), SignatureTemplates()

    def sign(envelope: bytes, *parts: PartDigests) -> bytes:
        return templates.sign(envelope, parts, who.key, who.certificate, _EC).envelope

    signed = sign(documents.envelope(), _part())
    with pytest.raises(SecurityFailure, match="signed already"):
        sign(signed, _part())
    with pytest.raises(SecurityFailure, match="no digest to sign"):
        sign(documents.envelope())
    with pytest.raises(SecurityFailure, match="two parts"):
        sign(documents.envelope(), _part(), _part())
