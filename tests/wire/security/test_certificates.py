"""Which certificates speak for a partner, and the corpus' certificates as its index tells them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from oncewire.errors import SecurityFailure
from oncewire.wire.security import certificates, references
from oncewire.wire.security.certificates import Trust
from tests.wire.security import keys
from tests.wire.security.keys import NOW, Identity, issue

_DAY = 24 * 60 * 60 * 1_000_000


def _at(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp()) * 1_000_000


def _corpus(corpus: Path, name: str) -> x509.Certificate:
    return certificates.load_certificate(
        (corpus / "nav-ebxml-processor" / "certs" / name).read_bytes()
    )


def _authority(common: str = "authority", name: x509.Name | None = None) -> Identity:
    """A certificate authority; `name` lets it pose as another."""
    if name is None:
        return issue(common, ca=True)
    key = keys.new_key("p256")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2030, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    return Identity(key, certificate)


def _crl(
    authority: Identity, *serials: int, until: datetime = datetime(2026, 12, 1, tzinfo=UTC)
) -> x509.CertificateRevocationList:
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(until - timedelta(days=300))
        .next_update(until)
    )
    for serial in serials:
        revoked = x509.RevokedCertificateBuilder().serial_number(serial)
        builder = builder.add_revoked_certificate(
            revoked.revocation_date(datetime(2026, 1, 2, tzinfo=UTC)).build()
        )
    return builder.sign(authority.key, hashes.SHA256())


# --- the corpus ----------------------------------------------------------------------------------


def test_a_self_signed_certificate_counts_only_when_pinned(corpus: Path) -> None:
    certificate = _corpus(corpus, "cert_selfsigned.pem")
    certificates.check(certificate, Trust((certificate,)), NOW)
    assert certificates.is_self_signed(certificate)
    with pytest.raises(SecurityFailure, match="self-signed and the agreement does not pin it"):
        certificates.check(certificate, Trust(), NOW)
    with pytest.raises(SecurityFailure, match="self-signed"):
        certificates.check(certificate, Trust(anchors=(issue("x", ca=True).certificate,)), NOW)


def test_an_expired_certificate_is_refused_even_when_pinned(corpus: Path) -> None:
    certificate = _corpus(corpus, "expired.qcevident.ca23.ssl.buypass.no.cer")
    with pytest.raises(SecurityFailure, match="has expired"):
        certificates.check(certificate, Trust((certificate,)), NOW)
    certificates.check(certificate, Trust((certificate,)), _at(2019, 6, 1))
    with pytest.raises(SecurityFailure, match="not valid yet"):
        certificates.check(certificate, Trust((certificate,)), _at(2018, 6, 1))


def test_a_revoked_certificate_is_refused_when_lists_are_on(corpus: Path) -> None:
    certificate = _corpus(corpus, "revoked.qcevident.ca23.ssl.buypass.no.cer")
    now = _at(2023, 6, 1)
    certificates.check(certificate, Trust((certificate,)), now)
    # The authority's own list is not in the corpus; one of its name with the same serial is made.
    authority = _authority(name=certificate.issuer)
    until = datetime(2023, 12, 1, tzinfo=UTC)
    crl = _crl(authority, certificate.serial_number, until=until)
    trust = Trust((certificate,), intermediates=(authority.certificate,), crls=(crl,))
    with pytest.raises(SecurityFailure, match="is revoked"):
        certificates.check(certificate, trust, now)
    clean = _crl(authority, certificate.serial_number + 1, until=until)
    certificates.check(
        certificate,
        Trust((certificate,), intermediates=(authority.certificate,), crls=(clean,)),
        now,
    )


def test_what_was_revoked_stays_so_however_old_the_list_is() -> None:
    authority, other = _authority(), _authority()
    leaf = issue("leaf", issuer=authority)
    serial = leaf.certificate.serial_number
    old = _crl(authority, serial, until=datetime(2026, 1, 2, tzinfo=UTC))
    known = (authority.certificate,)
    assert certificates.is_revoked(leaf.certificate, [old], known)
    assert not certificates.is_revoked(leaf.certificate, [_crl(authority, serial + 1)], known)
    assert not certificates.is_revoked(leaf.certificate, [], known)
    # A list that somebody else signed, in that name or in his own, revokes nothing.
    assert not certificates.is_revoked(leaf.certificate, [_crl(other, serial)], known)
    assert not certificates.is_revoked(leaf.certificate, [old], ())
    stranger = _authority("somebody else")
    lists = [_crl(stranger, serial)]
    assert not certificates.is_revoked(leaf.certificate, lists, (stranger.certificate,))


def test_a_valid_certificate_is_accepted_until_its_day(corpus: Path) -> None:
    certificate = _corpus(corpus, "valid.qcevident.ca23.ssl.buypass.no.cer")
    certificates.check(certificate, Trust((certificate,)), NOW)
    with pytest.raises(SecurityFailure, match="has expired"):
        certificates.check(certificate, Trust((certificate,)), _at(2026, 11, 1))
    with pytest.raises(SecurityFailure, match="nor names a trust anchor"):
        certificates.check(certificate, Trust(), NOW)


def test_certificates_of_files_and_agreements_are_one(corpus: Path) -> None:
    pem = certificates.load_certificate((corpus / "ebms-core/certs/localhost.pem").read_bytes())
    der = certificates.load_certificate((corpus / "ebms-core/certs/localhost.crt").read_bytes())
    assert pem == der
    assert certificates.summary(pem).subject.startswith("CN=localhost")
    assert certificates.validity(pem)[1] > _at(2030, 1, 1)
    info = references.parse((corpus / "ebms-admin/cpa/keystore.cer.keyinfo.xml").read_bytes())
    (shared,) = map(certificates.from_der, certificates.key_info_ders(info))
    assert certificates.summary(shared).key.startswith("RSA ")
    cpa = references.parse(
        (corpus / "ebms-core/cpa/cpaStubEBF.rm.https.signed-sha256.xml").read_bytes()
    )
    assert pem in map(certificates.from_der, certificates.key_info_ders(cpa))


def test_every_certificate_of_every_corpus_agreement_is_read(corpus: Path) -> None:
    read = 0
    for path in sorted(corpus.rglob("cpa/*.xml")):
        for der in certificates.key_info_ders(references.parse(path.read_bytes())):
            assert certificates.summary(certificates.from_der(der)).fingerprint
            read += 1
    assert read >= 20


# --- chains --------------------------------------------------------------------------------------


def test_a_chain_to_an_anchor_counts_with_a_named_subject() -> None:
    root = _authority()
    middle = issue("middle", issuer=root, ca=True)
    leaf = issue("partner", issuer=middle)
    named = frozenset({"CN=partner"})
    trust = Trust(anchors=(root.certificate,), intermediates=(middle.certificate,), subjects=named)
    certificates.check(leaf.certificate, trust, NOW)
    shown = [_der(middle), _der(leaf)]
    certificates.check(
        leaf.certificate, Trust(anchors=(root.certificate,), subjects=named), NOW, shown
    )
    with pytest.raises(SecurityFailure, match="does not chain"):
        certificates.check(
            leaf.certificate, Trust(anchors=(root.certificate,), subjects=named), NOW
        )
    with pytest.raises(SecurityFailure, match="does not name the subject"):
        certificates.check(leaf.certificate, Trust(anchors=(root.certificate,)), NOW, shown)


def test_a_leaf_cannot_issue() -> None:
    root = _authority()
    leaf = issue("partner", issuer=root)
    forged = issue("victim", issuer=leaf)
    trust = Trust(anchors=(root.certificate,), subjects=frozenset({"CN=victim"}))
    with pytest.raises(SecurityFailure, match="does not chain"):
        certificates.check(forged.certificate, trust, NOW, [_der(leaf)])


def test_an_authority_of_the_same_name_is_another() -> None:
    root, impostor = _authority(), _authority()
    leaf = issue("partner", issuer=impostor)
    trust = Trust(anchors=(root.certificate,), subjects=frozenset({"CN=partner"}))
    with pytest.raises(SecurityFailure, match="does not chain"):
        certificates.check(leaf.certificate, trust, NOW, [_der(impostor)])


def test_an_expired_link_breaks_the_chain() -> None:
    root = _authority()
    middle = issue("middle", issuer=root, ca=True, days=30)
    leaf = issue("partner", issuer=middle)
    trust = Trust(
        anchors=(root.certificate,),
        intermediates=(middle.certificate,),
        subjects=frozenset({"CN=partner"}),
    )
    certificates.check(leaf.certificate, trust, _at(2026, 1, 10))
    with pytest.raises(SecurityFailure, match="does not chain"):
        certificates.check(leaf.certificate, trust, NOW)


def test_a_partners_signing_certificate_with_its_own_habits_chains() -> None:
    # Business certificates carry key usages and extensions that web servers' ones do not.
    root = _authority()
    key = keys.new_key("rsa")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(
            x509.Name(
                [
                    x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Partner AS"),
                    x509.NameAttribute(NameOID.COMMON_NAME, "partner"),
                    x509.NameAttribute(NameOID.ORGANIZATION_IDENTIFIER, "NTRNO-1"),
                ]
            )
        )
        .issuer_name(root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(99)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2027, 1, 1, tzinfo=UTC))
        .add_extension(
            x509.KeyUsage(False, True, False, False, False, False, False, False, False), True
        )
        .add_extension(
            x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.EMAIL_PROTECTION]), False
        )
        .sign(root.key, hashes.SHA256())
    )
    subject = certificate.subject.rfc4514_string()
    certificates.check(
        certificate, Trust(anchors=(root.certificate,), subjects=frozenset({subject})), NOW
    )


# --- candidates ----------------------------------------------------------------------------------


def _der(identity: Identity) -> bytes:
    return identity.certificate.public_bytes(serialization.Encoding.DER)


def test_only_the_agreement_makes_a_candidate() -> None:
    good, bad = keys.alpha(), keys.mallory()
    pins = Trust((good.certificate,))
    assert certificates.candidates([], pins) == (good.certificate,)
    assert certificates.candidates([_der(bad), _der(good)], pins) == (good.certificate,)
    with pytest.raises(SecurityFailure, match="does not name"):
        certificates.candidates([_der(bad)], pins)
    with pytest.raises(SecurityFailure, match="does not name"):
        certificates.candidates([b"no certificate"], pins)
    with pytest.raises(SecurityFailure, match="pins none"):
        certificates.candidates([], Trust())
    anchored = Trust(anchors=(good.certificate,), subjects=frozenset({"CN=mallory"}))
    assert certificates.candidates([_der(good), _der(bad)], anchored) == (bad.certificate,)
    with pytest.raises(SecurityFailure, match="cannot be read"):
        certificates.candidates([b"no certificate"], anchored)


# --- revocation lists ----------------------------------------------------------------------------


def test_a_list_must_be_fresh_and_its_issuers_own() -> None:
    authority = _authority()
    leaf = issue("partner", issuer=authority)
    good = _crl(authority)

    def trust(
        *lists: x509.CertificateRevocationList, required: bool = False, known: bool = True
    ) -> Trust:
        return Trust(
            (leaf.certificate,),
            intermediates=(authority.certificate,) if known else (),
            crls=lists,
            crl_required=required,
        )

    certificates.check(leaf.certificate, trust(good, required=True), NOW)
    with pytest.raises(SecurityFailure, match="out of date"):
        certificates.check(
            leaf.certificate, trust(_crl(authority, until=datetime(2026, 5, 1, tzinfo=UTC))), NOW
        )
    with pytest.raises(SecurityFailure, match="not signed by a known issuer"):
        certificates.check(leaf.certificate, trust(good, known=False), NOW)
    with pytest.raises(SecurityFailure, match="not signed by a known issuer"):
        certificates.check(leaf.certificate, trust(_crl(_authority())), NOW)
    # Somebody else the agreement knows signs a list in the issuer's name.
    poser = Identity(keys.mallory().key, authority.certificate)
    known = Trust(
        (leaf.certificate,), intermediates=(keys.mallory().certificate,), crls=(_crl(poser),)
    )
    with pytest.raises(SecurityFailure, match="not signed by a known issuer"):
        certificates.check(leaf.certificate, known, NOW)
    with pytest.raises(SecurityFailure, match="no revocation list"):
        certificates.check(leaf.certificate, trust(required=True), NOW)
    other = _crl(_authority("somebody else"))
    certificates.check(leaf.certificate, trust(other), NOW)
    with pytest.raises(SecurityFailure, match="no revocation list"):
        certificates.check(leaf.certificate, trust(other, required=True), NOW)


def test_a_list_is_read_from_pem_and_der() -> None:
    made = _crl(_authority(), 5)
    for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER):
        assert certificates.load_crl(made.public_bytes(encoding)) == made
    with pytest.raises(SecurityFailure, match="no revocation list"):
        certificates.load_crl(b"no list")


# --- loading -------------------------------------------------------------------------------------


def test_one_or_several_certificates_are_loaded() -> None:
    one, two = keys.alpha(), keys.mallory()
    assert certificates.load_certificate(one.certificate_pem) == one.certificate
    both = certificates.load_certificates(one.certificate_pem + two.certificate_pem)
    assert both == (one.certificate, two.certificate)
    with pytest.raises(SecurityFailure, match="expected one certificate, found 2"):
        certificates.load_certificate(one.certificate_pem + two.certificate_pem)
    for junk in (b"", b"junk", b"\x30\x00", b"-----BEGIN CERTIFICATE-----\nxx"):
        with pytest.raises(SecurityFailure):
            certificates.load_certificates(junk)


def test_a_summary_tells_what_an_operator_wants() -> None:
    told = certificates.summary(keys.alpha("rsa").certificate)
    assert (told.subject, told.key, told.self_signed) == ("CN=alpha", "RSA 2048", True)
    assert told.not_after - told.not_before == 365 * _DAY
    assert certificates.summary(keys.alpha().certificate).key == "EC secp256r1"


def test_a_crowd_in_key_info_is_refused() -> None:
    inner = "<X509Certificate>AAAA</X509Certificate>" * 17
    info = references.parse(
        f'<KeyInfo xmlns="http://www.w3.org/2000/09/xmldsig#">{inner}</KeyInfo>'.encode()
    )
    with pytest.raises(SecurityFailure, match="17 certificates"):
        certificates.key_info_ders(info)
    bad = references.parse(
        b'<KeyInfo xmlns="http://www.w3.org/2000/09/xmldsig#"><X509Certificate>*</X509Certificate></KeyInfo>'
    )
    with pytest.raises(SecurityFailure, match="not base64"):
        certificates.key_info_ders(bad)
