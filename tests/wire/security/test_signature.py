"""What we sign others verify, what others sign we verify, and every single check can refuse."""

import re
import time

import pytest
from lxml import etree

from oncewire.errors import SecurityFailure
from oncewire.wire.security import algorithms, references, signature, wrapping
from oncewire.wire.security.algorithms import AlgorithmPolicy
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice, Verified
from tests.wire.roots import acknowledged_in
from tests.wire.security import documents, keys, reference_engine
from tests.wire.security.documents import PART, PART_ID
from tests.wire.security.keys import NOW, alpha

_KEY_OF = {
    "rsa-sha1": "rsa",
    "rsa-sha256": "rsa",
    "rsa-sha384": "rsa",
    "rsa-sha512": "rsa",
    "ecdsa-sha256": "p256",
    "ecdsa-sha384": "p384",
    "ecdsa-sha512": "p521",
}
_EVERYTHING = AlgorithmPolicy(
    frozenset(algorithms.SIGNATURE_URIS), frozenset(algorithms.DIGEST_URIS)
)
_ALL = tuple(algorithms.DIGEST_URIS)
_EC = SigningChoice("ecdsa-sha256")


def _part(content: bytes = PART, content_id: str = PART_ID) -> PartDigests:
    return PartDigests.of(content_id, content, *_ALL)


def _signed(envelope: bytes | None = None, choice: SigningChoice = _EC) -> bytes:
    who = alpha(_KEY_OF[choice.signature])
    return signature.sign(
        envelope or documents.envelope(), [_part()], who.key, who.certificate, choice
    ).envelope


def _verify(
    envelope: bytes,
    kind: str = "p256",
    policy: AlgorithmPolicy = algorithms.SAFE,
    parts: list[PartDigests] | None = None,
) -> Verified:
    trust = Trust((alpha(kind).certificate,))
    return signature.verify_signature(envelope, parts or [_part()], trust, NOW, policy)


# --- both ways with the referee ------------------------------------------------------------------


@pytest.mark.parametrize("canonical", sorted(algorithms.CANONICAL_URIS))
@pytest.mark.parametrize("digest", _ALL)
@pytest.mark.parametrize("name", sorted(algorithms.SIGNATURE_URIS))
def test_what_we_sign_the_referee_verifies(name: str, digest: str, canonical: str) -> None:
    choice = SigningChoice(name, digest, canonical)
    signed = _signed(documents.envelope(documents.HOP_BLOCKS), choice)
    pem = alpha(_KEY_OF[name]).certificate_pem
    assert reference_engine.verifies(signed, pem, {f"cid:{PART_ID}": PART})
    assert not reference_engine.verifies(signed, pem, {f"cid:{PART_ID}": PART + b"x"})
    assert not reference_engine.verifies(
        signed.replace(b"seven", b"eight"), pem, {f"cid:{PART_ID}": PART}
    )
    assert _verify(signed, _KEY_OF[name], _EVERYTHING).signature_name == name


@pytest.mark.parametrize("prefix", ["ds", ""])
@pytest.mark.parametrize("canonical", sorted(algorithms.CANONICAL_URIS))
@pytest.mark.parametrize("digest", _ALL)
@pytest.mark.parametrize("name", sorted(algorithms.SIGNATURE_URIS))
def test_what_the_referee_signs_we_verify(
    name: str, digest: str, canonical: str, prefix: str
) -> None:
    template = documents.template(
        documents.XPATH,
        algorithms.CANONICAL_URIS[canonical],
        signature=algorithms.SIGNATURE_URIS[name],
        digest=algorithms.DIGEST_URIS[digest],
        parts=(f"cid:{PART_ID}",),
        prefix=prefix,
    )
    kind = _KEY_OF[name]
    signed = reference_engine.sign(
        documents.envelope(template + documents.HOP_BLOCKS),
        alpha(kind).key_pem,
        {f"cid:{PART_ID}": PART},
    )
    verified = _verify(signed, kind, _EVERYTHING)
    assert [reference.digest_name for reference in verified.references] == [digest, digest]
    with pytest.raises(SecurityFailure, match="the envelope was changed"):
        _verify(signed.replace(b"seven", b"eight"), kind, _EVERYTHING)


def test_context_of_the_signature_counts() -> None:
    # xml: attributes and namespaces around the signature are part of what inclusive C14N shows.
    odd = documents.envelope().replace(
        b"<SOAP:Header>", b'<SOAP:Header xml:lang="no" xmlns:SOAP-ENV="urn:x" xmlns="urn:d">'
    )
    for canonical in algorithms.CANONICAL_URIS:
        signed = _signed(odd, SigningChoice("ecdsa-sha256", canonicalization=canonical))
        assert reference_engine.verifies(signed, alpha().certificate_pem, {f"cid:{PART_ID}": PART})
        assert _verify(signed)


def test_signing_changes_no_given_byte() -> None:
    given = documents.envelope(documents.HOP_BLOCKS)
    signed = _signed(given)
    begin = signed.index(b"<ds:Signature ")
    end = signed.index(b"</ds:Signature>") + len(b"</ds:Signature>")
    assert signed[:begin] + signed[end:] == given
    assert signed[end:].lstrip().startswith(b"</SOAP:Header>")


def test_the_header_is_found_where_its_end_tag_is_also_text() -> None:
    given = documents.envelope().replace(
        b"<SOAP:Body>", b"<!-- </SOAP:Header> --><SOAP:Body><![CDATA[</SOAP:Header>]]>"
    )
    given = given.replace(b"<SOAP:Header>", b"<!-- </SOAP:Header> --><SOAP:Header>")
    signed = _signed(given)
    assert reference_engine.verifies(signed, alpha().certificate_pem, {f"cid:{PART_ID}": PART})
    assert _verify(signed)


# --- what is handed back -------------------------------------------------------------------------


def test_the_view_holds_what_was_signed_and_nothing_else() -> None:
    signed = _signed(documents.envelope(documents.HOP_BLOCKS))
    verified = _verify(signed)
    assert references.parse(verified.octets).findtext(".//{*}MessageId") == "m-1001@alpha.example"
    assert references.NEXT_MSH.encode() not in verified.octets
    assert [etree.QName(tag).localname for tag in verified.hop_blocks] == [
        "SyncReply",
        "AckRequested",
        "HopSequence",
    ]
    whole = etree.fromstring(verified.readable)
    assert len(whole.findall(".//{*}AckRequested")) == 2
    assert len(references.parse(verified.octets).findall(".//{*}AckRequested")) == 1


def test_hop_blocks_may_change_on_the_way() -> None:
    signed = _signed(documents.envelope(documents.HOP_BLOCKS))
    forwarded = signed.replace(b">4711<", b">99<").replace(b'window="8"', b'window="9"')
    assert forwarded != signed
    assert _verify(forwarded).octets == _verify(signed).octets


def test_without_hop_blocks_the_signed_octets_are_the_envelope() -> None:
    verified = _verify(_signed())
    assert verified.readable == verified.octets


def test_a_comment_cannot_cut_a_value_short() -> None:
    # Comments are not signed, and `.text` stops at one: in the received tree the id reads "m-1".
    signed = _signed()
    cut = signed.replace(b"m-1001@alpha", b"m-1<!-- -->001@alpha")
    assert cut != signed
    received = etree.fromstring(cut).find(".//{*}MessageId")
    assert received is not None
    assert received.text == "m-1"
    assert (
        references.parse(_verify(cut).octets).findtext(".//{*}MessageId") == "m-1001@alpha.example"
    )


def test_parts_that_nothing_signs_are_named() -> None:
    parts = [_part(), _part(b"stowaway", "<extra@x>")]
    assert _verify(_signed(), parts=parts).unsigned_parts == ("extra@x",)


def test_percent_signs_in_a_cid_are_read() -> None:
    given = documents.envelope(manifest="order%2D1@alpha.example")
    signed = signature.sign(given, [_part()], alpha().key, alpha().certificate, _EC)
    assert b'URI="cid:order%2D1@alpha.example"' in signed.envelope
    assert _verify(signed.envelope)


# --- each check refuses --------------------------------------------------------------------------


def test_a_message_without_signature_is_refused() -> None:
    with pytest.raises(SecurityFailure, match="not signed"):
        _verify(documents.envelope())


def test_sha1_needs_the_agreements_word() -> None:
    signed = _signed(choice=SigningChoice("rsa-sha1", "sha1"))
    assert _verify(signed, "rsa", keys.WITH_SHA1)
    with pytest.raises(SecurityFailure, match="rsa-sha1 is not allowed"):
        _verify(signed, "rsa")
    with pytest.raises(SecurityFailure, match="digest algorithm sha1"):
        _verify(_signed(choice=SigningChoice("rsa-sha256", "sha1")), "rsa")


def test_a_small_rsa_key_needs_the_agreements_word() -> None:
    small = keys.issue("small", "rsa1024")
    signed = signature.sign(documents.envelope(), [_part()], small.key, small.certificate).envelope
    trust = Trust((small.certificate,))
    with pytest.raises(SecurityFailure, match="1024 bits"):
        signature.verify_signature(signed, [_part()], trust, NOW)
    assert signature.verify_signature(
        signed, [_part()], trust, NOW, AlgorithmPolicy(min_rsa_bits=1024)
    )


def test_canonicalization_follows_the_agreement() -> None:
    only = AlgorithmPolicy(canonicalizations=frozenset({"exc-c14n"}))
    assert _verify(_signed(choice=SigningChoice("ecdsa-sha256", "sha256", "exc-c14n")), policy=only)
    with pytest.raises(SecurityFailure, match="canonicalization c14n"):
        _verify(_signed(), policy=only)


def test_two_certificates_may_be_good_at_once() -> None:
    old, new = keys.issue("alpha"), keys.issue("alpha")
    trust = Trust((old.certificate, new.certificate))
    for who in (old, new):
        signed = signature.sign(documents.envelope(), [_part()], who.key, who.certificate, _EC)
        found = signature.verify_signature(signed.envelope, [_part()], trust, NOW)
        assert found.certificate == who.certificate
        # Without KeyInfo the agreement's own certificates are tried.
        bare = re.sub(rb"<ds:KeyInfo>.*</ds:KeyInfo>", b"", signed.envelope)
        assert (
            signature.verify_signature(bare, [_part()], trust, NOW).certificate == who.certificate
        )


def test_key_and_algorithm_must_be_of_one_kind() -> None:
    with pytest.raises(SecurityFailure, match="not of the kind"):
        signature.sign(documents.envelope(), [_part()], alpha().key, alpha().certificate)
    relabelled = _signed().replace(
        algorithms.SIGNATURE_URIS["ecdsa-sha256"].encode(),
        algorithms.SIGNATURE_URIS["rsa-sha256"].encode(),
    )
    with pytest.raises(SecurityFailure, match="not of the kind"):
        _verify(relabelled)


@pytest.mark.parametrize(
    "uri",
    [
        "http://www.w3.org/2000/09/xmldsig#hmac-sha1",
        documents.HMAC_SHA256,
        "http://www.w3.org/2001/04/xmldsig-more#rsa-md5",
        "http://www.w3.org/2000/09/xmldsig#dsa-sha1",
        "",
    ],
)
def test_other_signature_algorithms_do_not_exist(uri: str) -> None:
    swapped = _signed().replace(algorithms.SIGNATURE_URIS["ecdsa-sha256"].encode(), uri.encode())
    with pytest.raises(SecurityFailure, match="is not accepted"):
        _verify(swapped)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (rb'<ds:Reference URI="">.*?</ds:Reference>', b"", "covers the envelope 0 times"),
        (rb'(<ds:Reference URI="">.*?</ds:Reference>)', rb"\1\1", "covers the envelope 2 times"),
        (rb'URI=""', rb'URI="#body"', "neither envelope nor part"),
        (rb' URI=""', rb"", "has no URI"),
        (
            rb'(URI="cid:[^>]*>)',
            rb'\1<ds:Transforms><ds:Transform Algorithm="x"/></ds:Transforms>',
            "transforms the part",
        ),
        (rb'(<ds:Reference URI="cid:.*?</ds:Reference>)', rb"\1" * 1_001, "more than 1000"),
        (rb'URI="cid:', rb'URI="http:', "neither envelope nor part"),
        (rb"<ds:Transforms>", rb"<ds:Transforms><ds:Transform/>", "not the standard's"),
        (rb"<ds:Transforms>.*?</ds:Transforms>", rb"", "not the standard's"),
        (rb"#enveloped-signature", rb"#base64", "not the standard's"),
        (rb"REC-xpath-19991116", rb"REC-xslt-19991116", "not the standard's"),
        (rb"</ds:SignedInfo>", rb"<!-- c --></ds:SignedInfo>", "comment"),
        (rb"</ds:SignedInfo>", rb"<x/></ds:SignedInfo>", "unexpected form"),
        (rb"</ds:KeyInfo>", rb"</ds:KeyInfo><ds:Object/>", "three elements"),
        (rb"<ds:DigestValue>", rb"<ds:DigestValue>*", "not base64"),
        (rb"<ds:SignatureValue>", rb"<ds:SignatureValue>A", "not base64|was not made"),
        (rb"c14n-20010315", rb"c14n-20010315#WithComments", "is not accepted"),
        (rb"<ds:X509Certificate>MII", rb"<ds:X509Certificate>MIJ", "does not name"),
        (rb"(<ds:SignatureMethod [^>]*)/>", rb"\1><x/></ds:SignatureMethod>", "parameters"),
        (rb"<ds:XPath xmlns:SOAP=", rb"<ds:XPath xmlns:S=", "was not made"),
        (
            rb'(<ds:Signature )(.*?)<ds:XPath xmlns:SOAP="[^"]*"',
            rb'\1xmlns:SOAP="urn:x" \2<ds:XPath',
            "not SOAP",
        ),
    ],
)
def test_a_signature_of_another_form_is_refused(old: bytes, new: bytes, why: str) -> None:
    signed = _signed()
    changed = re.sub(old, new, signed, count=1, flags=re.DOTALL)
    assert changed != signed
    with pytest.raises(SecurityFailure, match=why):
        _verify(changed)


def test_under_exclusive_c14n_a_prefix_cannot_be_rebound() -> None:
    # Exclusive C14N does not show a prefix that only the expression's text uses, so the signature
    # value survives a new meaning of it. The meaning itself is what is checked.
    template = documents.template(
        documents.XPATH,
        documents.EXCLUSIVE,
        signature=algorithms.SIGNATURE_URIS["ecdsa-sha256"],
        parts=(f"cid:{PART_ID}",),
    )
    signed = reference_engine.sign(
        documents.envelope(template), alpha().key_pem, {f"cid:{PART_ID}": PART}
    )
    assert _verify(signed)
    rebound = signed.replace(b"<ds:Signature ", b'<ds:Signature xmlns:SOAP="urn:evil" ')
    assert reference_engine.verifies(rebound, alpha().certificate_pem, {f"cid:{PART_ID}": PART})
    with pytest.raises(SecurityFailure, match="not SOAP"):
        _verify(rebound)


@pytest.mark.parametrize("prefixes", ["#default", "SOAP #default"])
def test_a_prefix_list_we_cannot_follow_is_refused(prefixes: str) -> None:
    template = documents.template(
        documents.XPATH, documents.EXCLUSIVE, prefixes=prefixes,
        signature=algorithms.SIGNATURE_URIS["ecdsa-sha256"],
    )  # fmt: skip
    signed = reference_engine.sign(documents.envelope(template, manifest=""), alpha().key_pem, {})
    with pytest.raises(SecurityFailure, match="default namespace"):
        _verify(signed)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([_part(b"other")], "was changed"),
        ([], "did not arrive"),
        ([_part(), _part()], "two parts have the Content-ID"),
        ([_part(), _part(b"evil", f"<{PART_ID}>")], "two parts have|was changed"),
        ([PartDigests(PART_ID, {"sha512": b"x" * 64})], "was changed"),
    ],
)
def test_parts_must_be_the_signed_ones(parts: list[PartDigests], why: str) -> None:
    trust = Trust((alpha().certificate,))
    with pytest.raises(SecurityFailure, match=why):
        signature.verify_signature(_signed(), parts, trust, NOW)


def test_a_part_is_signed_once() -> None:
    template = documents.template(
        documents.XPATH,
        documents.INCLUSIVE,
        signature=algorithms.SIGNATURE_URIS["ecdsa-sha256"],
        parts=(f"cid:{PART_ID}", f"cid:{PART_ID}"),
    )
    signed = reference_engine.sign(
        documents.envelope(template), alpha().key_pem, {f"cid:{PART_ID}": PART}
    )
    with pytest.raises(SecurityFailure, match=r"refers to part .* twice"):
        _verify(signed)


def test_parts_without_a_name_are_not_read() -> None:
    parts = [_part(), _part(b"x", ""), _part(b"y", "")]
    assert _verify(_signed(), parts=parts).unsigned_parts == ()


def test_an_ecdsa_value_has_one_length() -> None:
    key = alpha().key
    value = algorithms.sign_octets(key, "ecdsa-sha256", b"octets")
    certificate = alpha().certificate
    longer = value[:32] + b"\0" + value[32:]  # the same two numbers
    assert algorithms.verify_octets(certificate, "ecdsa-sha256", b"octets", value, 0)
    assert not algorithms.verify_octets(certificate, "ecdsa-sha256", b"octets", longer, 0)


def test_a_manifest_part_must_be_signed() -> None:
    template = documents.template(
        documents.XPATH,
        documents.INCLUSIVE,
        signature=algorithms.SIGNATURE_URIS["ecdsa-sha256"],
    )
    signed = reference_engine.sign(documents.envelope(template), alpha().key_pem, {})
    with pytest.raises(SecurityFailure, match="of the Manifest is not signed"):
        _verify(signed)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"</SOAP:Header>", b"", "not well-formed"),
        (b"<eb:MessageHeader ", b'<eb:MessageHeader eb:id="a" id="a" ', "given to two elements"),
        (b"SOAP:Header", b"SOAP:Head", "exactly one SOAP Header"),
        (b"SOAP:Body", b"SOAP:Bodies", "exactly one SOAP Body"),
        (b"eb:MessageHeader", b"eb:MessageHeading", "has no MessageHeader"),
        (b"</SOAP:Header>", b"<eb:MessageHeader/></SOAP:Header>", "MessageHeader stands twice"),
        (b"</SOAP:Header>", b"<eb:AckRequested/></SOAP:Header>", "AckRequested stands twice"),
        (b"</SOAP:Body>", b"<eb:Manifest/></SOAP:Body>", "Manifest stands twice"),
        (b"</SOAP:Body>", b"<eb:SyncReply/></SOAP:Body>", "where the standard has none"),
    ],
)
def test_we_do_not_sign_what_we_would_refuse(old: bytes, new: bytes, why: str) -> None:
    with pytest.raises(SecurityFailure, match=why):
        _signed(documents.envelope().replace(old, new))


_WSU = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"


def _with_ids(*names: str) -> bytes:
    """As many ids as a header may have, all different but the last one."""
    count = 38_000
    step = len(names)
    values = [*range(count - 1), count - 2]
    ids = [f'{names[at % step]}="{value}"' for at, value in enumerate(values)]
    rows = [f"<x {' '.join(ids[at : at + step])}/>" for at in range(0, count, step)]
    # A header has at most a thousand children in one element.
    groups = "".join(f"<g>{''.join(rows[at : at + 900])}</g>" for at in range(0, len(rows), 900))
    return documents.envelope(f'<f xmlns="urn:other" xmlns:w="{_WSU}">{groups}</f>')


@pytest.mark.parametrize("names", [("id", "Id", "ID", "w:Id"), ("id", "eb:id")])
def test_ids_are_checked_in_one_look_each(names: tuple[str, ...]) -> None:
    """Half a megabyte of ids took 22 seconds, from anybody: the signer is not known yet."""
    root = references.parse(_with_ids(*names))
    began = time.process_time()
    with pytest.raises(SecurityFailure, match="given to two elements"):
        wrapping.check_blocks(root, wrapping.frame_of(root))
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("encoding", ["UTF-16"])
def test_we_sign_in_utf8_only(encoding: str) -> None:
    text = documents.envelope().decode().replace("UTF-8", encoding)
    with pytest.raises(SecurityFailure, match="cannot sign an envelope in"):
        _signed(text.encode(encoding))


def test_an_envelope_is_signed_once() -> None:
    with pytest.raises(SecurityFailure, match="signed already"):
        _signed(_signed())


def test_signing_wants_every_digest() -> None:
    who = alpha()
    for parts, why in (
        ([], "has no digest to sign"),
        ([PartDigests(PART_ID, {"sha512": b""})], "without its sha256 digest"),
        ([_part(), _part()], "one Content-ID"),
    ):
        with pytest.raises(SecurityFailure, match=why):
            signature.sign(documents.envelope(), parts, who.key, who.certificate, _EC)


# --- the drafts ----------------------------------------------------------------------------------


@pytest.mark.requirement("ACK-14")
@pytest.mark.parametrize("routing", ["RoutingHeaderList", "RoutingHeader"])
@pytest.mark.parametrize("namespace", [True, False])
def test_a_draft_message_is_signed_but_for_its_routing(namespace: bool, routing: str) -> None:
    given = documents.draft(namespace, routing)
    signed = _signed(given)
    assert reference_engine.verifies(signed, alpha().certificate_pem, {f"cid:{PART_ID}": PART})
    verified = _verify(signed)
    assert references.parse(verified.octets).findtext(".//{*}MessageId") == "m-1"
    assert [etree.QName(tag).localname for tag in verified.hop_blocks] == [routing]
    hopped = signed.replace(b"http://alpha.example/msh", b"http://hub.example/msh")
    assert _verify(hopped).octets == verified.octets
    with pytest.raises(SecurityFailure, match="was changed"):
        _verify(signed.replace(b">m-1<", b">m-2<"))
    inside = f"<{routing}><MessageId>EVIL</MessageId></{routing}></Header>".encode()
    with pytest.raises(SecurityFailure, match=r"where the standard has none|stands twice"):
        _verify(signed.replace(b"</Header>", inside, 1))


# --- signed acknowledgments ----------------------------------------------------------------------


def _acknowledge(received: tuple[references.SignedReference, ...]) -> bytes:
    copied = "".join(map(references.reference_xml, received))
    elements = copied.replace(
        "<ds:Reference ", f'<ds:Reference xmlns:ds="{documents.DS}" '
    ).encode()
    block = (
        b'<eb:Acknowledgment SOAP:mustUnderstand="1" eb:version="2.0">'
        b"<eb:Timestamp>2026-06-01T00:00:00Z</eb:Timestamp>"
        b"<eb:RefToMessageId>m-1001@alpha.example</eb:RefToMessageId>" + elements
    ).decode() + "</eb:Acknowledgment>"
    given = documents.envelope(block, manifest="")
    return signature.sign(given, [], alpha().key, alpha().certificate, _EC).envelope


def _read_acknowledgment(envelope: bytes) -> tuple[references.SignedReference, ...]:
    verified = signature.verify_signature(envelope, [], Trust((alpha().certificate,)), NOW)
    return acknowledged_in(verified.octets)


@pytest.mark.requirement("ACK-14")
def test_a_signed_acknowledgment_proves_what_was_received() -> None:
    sent = signature.sign(
        documents.envelope(documents.HOP_BLOCKS), [_part()], alpha().key, alpha().certificate, _EC
    )
    received = _verify(sent.envelope)
    acknowledgment = _acknowledge(received.references)
    assert reference_engine.verifies(acknowledgment, alpha().certificate_pem, {})
    proof = _read_acknowledgment(acknowledgment)
    references.check_acknowledged(proof, sent.references)
    # The copied references keep their meaning: they are read like those of a signature.
    block = etree.fromstring(acknowledgment).find(".//{*}Acknowledgment")
    assert block is not None
    assert references.read_references(block) == sent.references


@pytest.mark.requirement("ACK-14")
def test_a_signed_acknowledgment_of_an_unsigned_message() -> None:
    given = documents.envelope()
    theirs = signature.computed_references(given, [_part()], "sha256")
    proof = _read_acknowledgment(_acknowledge(theirs))
    ours = signature.computed_references(given, [_part()], proof[0].digest_name)
    references.check_acknowledged(proof, ours)


def test_an_acknowledgment_of_something_else_is_refused() -> None:
    given = documents.envelope()
    sent = signature.computed_references(given, [_part()], "sha256")
    other = signature.computed_references(given, [_part(b"other")], "sha256")
    longer = signature.computed_references(given, [_part(), _part(b"more", "more@x")], "sha256")
    stronger = signature.computed_references(given, [_part()], "sha512")
    strange = references.SignedReference("http://x/", "sha256", b"")
    for proof, why in (
        ((), "carries no digests"),
        (sent[:1], "says nothing about part"),
        (sent[1:], "says nothing about the envelope"),
        (other, "is not that of what was sent"),
        (longer, "parts that were not sent"),
        (stronger, "with sha512"),
        ((*sent, sent[1]), "twice"),
        ((*sent, strange), "neither the envelope nor a part"),
    ):
        with pytest.raises(SecurityFailure, match=why) as refused:
            references.check_acknowledged(proof, sent)
        assert refused.value.code == "SecurityFailure"


def test_an_acknowledgment_whose_copied_expression_lost_its_binding_still_counts() -> None:
    sent = signature.sign(documents.envelope(), [_part()], alpha().key, alpha().certificate, _EC)
    copied = "".join(map(references.reference_xml, sent.references))
    lost = copied.replace("SOAP:actor", "SOAP-ENV:actor").replace("xmlns:SOAP=", "xmlns:x=")
    block = references.parse(f'<a xmlns:ds="{documents.DS}">{lost}</a>'.encode())
    plain = [
        references.acknowledged(one.uri, algorithms.DIGEST_URIS[one.digest_name], one.digest)
        for one in sent.references
    ]
    references.check_acknowledged(plain, sent.references)
    with pytest.raises(SecurityFailure, match="not bound"):
        references.read_references(block)
