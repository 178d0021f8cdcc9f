"""What was learned of a signature says what its tree says, and never more."""

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.errors import SecurityFailure
from oncewire.message import Dialect
from oncewire.wire.security import references, signature, signing, wrapping
from oncewire.wire.security.algorithms import AlgorithmPolicy
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import Covered, Signature, Verified
from oncewire.wire.security.signature_template import LATEST, SignatureTemplateCache, known_of
from oncewire.wire.security.signing import Layouts, SigningChoice
from oncewire.wire.templates.gaps import find_gaps
from oncewire.wire.templates.pattern import (
    DOCUMENT_MAX,
    BoundedCache,
    SlottedBytes,
    pattern_of,
    perforated,
)
from tests.wire.differential.likes import like, signed_envelopes
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
    return signing.sign(given, parts, who.key, who.certificate, _EC).envelope


def _taught(*envelopes: bytes, part_id: str = PART_ID) -> SignatureTemplateCache:
    learned = SignatureTemplateCache()
    for envelope in envelopes:
        learned.verify("alpha", envelope, [_part(content_id=part_id)], ALPHA, keys.NOW)
    assert len(learned) == len(envelopes)
    return learned


def _verdict(verify: Callable[[], Verified]) -> Verified | str:
    try:
        return verify()
    except SecurityFailure as failure:
        return failure.problem


def _same(
    learned: SignatureTemplateCache, envelope: bytes, parts: list[PartDigests]
) -> Verified | str:
    """What is said of an envelope, which must be what is said without anything learned."""
    found = _verdict(lambda: learned.verify("alpha", envelope, parts, ALPHA, keys.NOW))
    full = _verdict(lambda: signature.verify_signature(envelope, parts, ALPHA, keys.NOW))
    assert found == full, envelope
    return found


@pytest.mark.parametrize("header_extra", ["", _HOPS])
def test_the_second_of_a_kind_is_checked_without_its_tree(
    header_extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned, second = _taught(_signed(1, header_extra)), _signed(2, header_extra)
    full = signature.verify_signature(second, [_part()], ALPHA, keys.NOW)
    monkeypatch.setattr(references, "parse", None)
    assert learned.verify("alpha", second, [_part()], ALPHA, keys.NOW) == full
    assert learned.references(second) == full.references
    assert learned.hits == 1
    assert b"m-2@alpha.example" in full.octets


def test_another_name_of_a_part_is_of_the_same_kind() -> None:
    learned = _taught(_signed(1))
    other = _signed(2, part_id="order-2@alpha.example")
    found = _same(learned, other, [_part(content_id="order-2@alpha.example")])
    assert isinstance(found, Verified)
    assert learned.hits == 1
    # And so is one that names a part in the header alone, or not at all.
    assert _same(learned, other, [_part()]) == "signed part 'order-2@alpha.example' did not arrive"


def test_every_check_is_made_of_what_is_known_too() -> None:
    learned, second = _taught(_signed(1)), _signed(2)
    changed = [
        (second.replace(b"m-2@", b"m-3@"), [_part()]),
        (second.replace(b"<ds:SignatureValue>", b"<ds:SignatureValue>AAAA"), [_part()]),
        (second.replace(b"seven boxes", b"eight boxes"), [_part()]),
        (second, [_part(PART + b" ")]),
        (second, [_part(), _part()]),
        (second, []),
    ]
    for envelope, parts in changed:
        assert isinstance(_same(learned, envelope, parts), str)
    assert isinstance(_same(learned, second, [_part(), _part(content_id="more")]), Verified)
    late = keys.NOW + 400 * 24 * 3600 * 1_000_000
    strict = AlgorithmPolicy(frozenset({"rsa-sha256"}))
    mallory = Trust((keys.mallory().certificate,))
    with pytest.raises(SecurityFailure, match="expired"):
        learned.verify("alpha", second, [_part()], ALPHA, late)
    with pytest.raises(SecurityFailure, match="not allowed"):
        learned.verify("alpha", second, [_part()], ALPHA, keys.NOW, strict)
    with pytest.raises(SecurityFailure, match="does not name"):
        learned.verify("alpha", second, [_part()], mallory, keys.NOW)


def test_how_something_is_signed_is_no_text_that_may_differ() -> None:
    """The expression of the transform, and whose certificate it is."""
    learned, second = _taught(_signed(1)), _signed(2)
    before = learned.hits
    for old, new in (
        (b"not(ancestor", b"not( ancestor"),
        (b"<ds:X509Certificate>M", b"<ds:X509Certificate>N"),
    ):
        changed = second.replace(old, new, 1)
        assert isinstance(_same(learned, changed, [_part()]), str)
    assert learned.hits == before


def test_what_proves_nothing_teaches_nothing_and_helps_nobody_else() -> None:
    learned, good = SignatureTemplateCache(), _signed(1)
    with pytest.raises(SecurityFailure):
        learned.verify("alpha", good.replace(b"seven", b"eight"), [_part()], ALPHA, keys.NOW)
    assert len(learned) == 0
    learned.verify("alpha", good, [_part()], ALPHA, keys.NOW)
    assert len(learned) == 1
    learned.verify("beta", good, [_part()], ALPHA, keys.NOW)
    assert learned.hits == 0


def test_what_was_signed_is_remembered_of_the_last_ones() -> None:
    learned = SignatureTemplateCache()
    for number in range(LATEST + 1):
        learned.remember(b"%d" % number, ())
    assert learned.references(b"0") is None
    assert learned.references(b"1") == ()
    assert learned.references(b"%d" % LATEST) == ()


def test_who_never_signs_alike_is_seldom_learned_from() -> None:
    learned = SignatureTemplateCache()
    for number in range(9):
        odd = _signed(1, f"<x:e{number} xmlns:x='urn:x'/>")
        learned.verify("alpha", odd, [_part()], ALPHA, keys.NOW)
    assert len(learned) == 4, "the first, the second, the fourth and the eighth"


@pytest.mark.long
def test_no_forgery_is_accepted_by_what_was_learned() -> None:
    goods = forger.good_messages()
    learned, parts = SignatureTemplateCache(), [forger.good_part()]
    for _ in range(8):
        for envelope in goods.values():
            learned.verify("alpha", envelope, parts, ALPHA, keys.NOW)
    hits = learned.hits
    assert len(learned) >= 2
    made = forger.forgeries(20260101)
    believed = [
        forgery.how
        for forgery in made
        if not isinstance(_same(learned, forgery.envelope, list(forgery.parts)), str)
    ]
    assert len(made) >= 1_000
    assert believed == []
    assert learned.hits == hits


@pytest.mark.long
def test_a_bit_that_flips_is_seen_by_what_was_learned() -> None:
    first = _signed(1)
    learned = _taught(first)
    for byte in range(len(first)):
        flipped = bytearray(first)
        flipped[byte] ^= 1 << byte % 8
        _same(learned, bytes(flipped), [_part()])
    assert learned.hits < 20


def _by_tree(envelope: bytes) -> tuple[Signature, Covered]:
    """What the tree says of an envelope, whether its digests are right or not."""
    root = references.parse(envelope)
    frame = wrapping.frame_of(root)
    found = signature.read_signature(frame.header)
    wrapping.check_blocks(root, frame)
    reference = found.envelope_reference
    left_out = (reference.exclusion or references.NOTHING).subtrees(root)
    wrapping.check_left_out(left_out, frame)
    octets = signature.covered_octets(root, found, left_out)
    readable = signature.readable(octets, references.parse(octets), left_out)
    plain = Signature(
        found.octets, found.name, found.canonicalization, found.value, found.references,
        found.key_info,
    )  # fmt: skip
    tags = tuple(str(block.tag) for block in left_out)
    return plain, Covered(found.references, octets, readable, tags, ())


@pytest.mark.long
def test_the_octets_of_an_envelope_like_a_known_one_are_those_of_its_tree() -> None:
    alike = 0
    for number, envelope in enumerate(signed_envelopes()[:2]):
        document = perforated(envelope)
        known = known_of(envelope, document, _by_tree(envelope)[1])
        assert known is not None
        gaps = find_gaps(envelope, Dialect.EBMS2)
        for case in range(1500):
            changed = like(random.Random(f"{number}:{case}"), envelope, gaps)
            other = perforated(changed)
            if (other.markup, other.texts, len(other.holes)) != (
                document.markup, document.texts, len(document.holes)
            ):  # fmt: skip
                continue
            found = known.signature(other.holes)
            if found is not None:
                said, shown = _by_tree(changed)
                assert found == said, changed
                assert known.shows(other.holes, shown), changed
                alike += 1
    assert alike > 200


# --- patterns ------------------------------------------------------------------------------------

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
        assert perforated(document).document == document


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
    document = perforated(drawn)
    try:
        pattern = pattern_of(document, _octets(method))
    except SecurityFailure:
        return
    if pattern is None:
        return
    texts = [data.draw(_TEXTS).encode() for _ in range(document.texts)]
    other = document._replace(holes=[*texts, *document.holes[document.texts :]])
    assert perforated(other.document) == other
    assert pattern.octets(other.holes) == _octets(method)(other.document)


def test_texts_of_every_kind_are_copied() -> None:
    document = perforated(b'<a b="1>2">x<c/>y<d>z</d> w </a>')
    assert document.holes == [b"x", b"y", b"z"]
    pattern = pattern_of(document, _octets("c14n"))
    assert pattern is not None
    assert pattern.octets([b"1", b"2 \n\t'\"=]", b"3"]) == (
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
        b"<a>oncewirehole0000</a>",
        b"<a>x" + b"y" * DOCUMENT_MAX + b"</a>",
    ],
)
def test_what_no_pattern_is_made_of(document: bytes) -> None:
    assert pattern_of(perforated(document), _octets("c14n")) is None


@pytest.mark.parametrize("text", [b"&amp;", b"\r", b"\xc3\xa4", b" x", b"a>", b"\x00"])
def test_what_is_no_plain_text_is_markup(text: bytes) -> None:
    assert perforated(b"<a>" + text + b"</a>").holes == []


def test_signs_that_look_like_gaps_are_told_from_them() -> None:
    one, other = perforated(b"<a>x</a><b>y</b>"), perforated(b"<a\x00/a><b>y</b>")
    places: BoundedCache[str] = BoundedCache()
    places.keep("a", one, "known")
    assert one.markup == other.markup
    assert places.find("a", one) == "known"
    assert places.find("a", other) is None


def test_the_table_is_bounded() -> None:
    places: BoundedCache[int] = BoundedCache(owners=2, of_one=3)
    for owner in "abc":
        for number in range(9):
            places.keep(owner, SlottedBytes(b"%d" % number, [], 0), number)
    assert len(places) == 6
    assert places.find("a", SlottedBytes(b"8", [], 0)) is None
    assert [places.find("c", SlottedBytes(b"%d" % n, [], 0)) for n in (5, 6, 8)] == [None, 6, 8]


# --- signing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["c14n", "exc-c14n"])
def test_what_is_signed_by_a_learned_layout_is_what_would_be_signed(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A key whose signatures are the same each time.
    who, choice, layouts = keys.alpha("rsa"), SigningChoice(canonicalization=method), Layouts()

    def sign(number: int, learned: Layouts | None) -> signing.Signed:
        name = f"order-{number}@alpha.example"
        given = documents.envelope(_HOPS, name, f" {number}")
        parts = [_part(b"%d" % number, name), _part(content_id="more")]
        return signing.sign(given, parts, who.key, who.certificate, choice, learned)

    assert sign(1, layouts) == sign(1, None)
    assert len(layouts) == 2
    second = sign(2, None)
    parts = {"cid:order-2@alpha.example": b"2", "cid:more": PART}
    assert reference_engine.verifies(second.envelope, who.certificate_pem, parts)
    monkeypatch.setattr(references, "parse", None)
    assert sign(2, layouts) == second


def test_a_layout_is_no_way_around_what_may_be_signed() -> None:
    who, layouts = keys.alpha(), Layouts()

    def sign(envelope: bytes, *parts: PartDigests) -> bytes:
        return signing.sign(envelope, parts, who.key, who.certificate, _EC, layouts).envelope

    signed = sign(documents.envelope(), _part())
    with pytest.raises(SecurityFailure, match="signed already"):
        sign(signed, _part())
    with pytest.raises(SecurityFailure, match="no digest to sign"):
        sign(documents.envelope())
    with pytest.raises(SecurityFailure, match="two parts"):
        sign(documents.envelope(), _part(), _part())
