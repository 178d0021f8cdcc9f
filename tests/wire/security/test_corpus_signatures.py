"""Every signed sample of the corpus gives what its index says of it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from oncewire.errors import SecurityFailure
from oncewire.wire.security import references, signature
from oncewire.wire.security.certificates import Trust
from tests.wire.roots import acknowledged_in
from tests.wire.security.mails import read_mail


def _at(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp()) * 1_000_000


def test_a_payload_cut_short_fails_alone(corpus: Path) -> None:
    mail = read_mail(corpus, "inntektsforesporsel.eml")
    report = signature.inspect(mail.envelope, mail.parts)
    assert report.value_good
    assert report.references == (("", True), ("cid:ref1", False))
    with pytest.raises(SecurityFailure, match=r"'ref1' was changed") as refused:
        signature.verify_signature(
            mail.envelope, mail.parts, Trust((mail.certificate,)), _at(2026, 2, 12)
        )
    assert refused.value.code == "SecurityFailure"
    assert refused.value.location == "cid:ref1"


def test_with_the_whole_payload_it_would_be_good(corpus: Path) -> None:
    # The sample's payload is lost, but its digest is not: handing in the signed digest shows that
    # everything else of this real message verifies and reads.
    mail = read_mail(corpus, "inntektsforesporsel.eml")
    signed = _signed_digest(mail.envelope, "ref1")
    verified = signature.verify_signature(
        mail.envelope,
        [references.PartDigests("<ref1>", {"sha256": signed})],
        Trust((mail.certificate,)),
        _at(2026, 2, 12),
    )
    root = references.parse(verified.octets)
    assert root.findtext(".//{*}MessageId") == "35dde971-53c6-47fb-9a11-030c6aa4ef98"
    assert root.find(".//{*}Signature") is None
    assert verified.hop_blocks == ()
    assert verified.certificate == mail.certificate
    assert verified.signature_name == "rsa-sha256"


def _signed_digest(envelope: bytes, content_id: str) -> bytes:
    info = references.parse(envelope).find(".//{*}SignedInfo")
    assert info is not None
    return next(
        reference.digest
        for reference in references.read_references(info)
        if reference.content_id == content_id
    )


def test_an_envelope_changed_after_signing_is_refused(corpus: Path) -> None:
    mail = read_mail(corpus, "ebxml_no_cpaid.eml")
    report = signature.inspect(mail.envelope, mail.parts)
    assert report.value_good
    assert report.references[0] == ("", False)
    with pytest.raises(SecurityFailure, match="the envelope was changed"):
        signature.verify_signature(
            mail.envelope, mail.parts, Trust((mail.certificate,)), _at(2026, 2, 12)
        )


def test_a_signed_acknowledgment_is_good_and_says_what_it_received(corpus: Path) -> None:
    mail = read_mail(corpus, "acknowledgment_no_from.eml")
    verified = signature.verify_signature(
        mail.envelope, [], Trust((mail.certificate,)), _at(2023, 11, 21)
    )
    # This partner signs without the XPath step: more is covered than the standard asks.
    assert verified.hop_blocks == ()
    (received,) = acknowledged_in(verified.octets)
    assert (received.uri, received.digest_name) == ("", "sha256")
    references.check_acknowledged([received], [received])


def test_the_acknowledgments_certificate_has_expired_since(corpus: Path) -> None:
    mail = read_mail(corpus, "acknowledgment_no_from.eml")
    with pytest.raises(SecurityFailure, match="has expired"):
        signature.verify_signature(mail.envelope, [], Trust((mail.certificate,)), _at(2026, 2, 12))


@pytest.mark.parametrize(
    "name", ["inntektsforesporsel.eml", "ebxml_no_cpaid.eml", "acknowledgment_no_from.eml"]
)
def test_a_certificate_in_the_message_proves_nothing(corpus: Path, name: str) -> None:
    mail = read_mail(corpus, name)
    other = {
        "acknowledgment_no_from.eml": "inntektsforesporsel.eml",
    }.get(name, "acknowledgment_no_from.eml")
    stranger = read_mail(corpus, other).certificate
    for trust in (Trust(), Trust((stranger,))):
        with pytest.raises(SecurityFailure, match="agreement does not name"):
            signature.verify_signature(mail.envelope, mail.parts, trust, _at(2024, 11, 21))
