"""`agreement check`: each danger has an agreement that trips it and one that does not."""

import datetime
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from oncewire.agreement.agreement import TRANSPORTS, Agreement
from oncewire.agreement.certificates import to_pem
from oncewire.agreement.check import Finding, Severity
from oncewire.agreement.check.dangers import check, check_all
from oncewire.agreement.check.exposure import Abilities, refuse_unable
from oncewire.agreement.compose import PROFILES
from oncewire.agreement.cppa.reader import read_cpa
from oncewire.errors import AgreementProblem
from oncewire.message.ids import Party
from oncewire.message.instant import DAY, SECOND
from tests.agreement import samples
from tests.agreement.readings import check_cpa, check_toml
from tests.agreement.samples import NOW


def _keys(findings: tuple[Finding, ...]) -> set[tuple[Severity, str]]:
    return {(one.severity, one.key) for one in findings}


def _found(agreement: Agreement, key: str, words: str = "") -> list[Finding]:
    return [one for one in check(agreement, now=NOW) if one.key == key and words in one.sentence]


AUTHORITY = to_pem(b"0authority").replace("\n", "\\n")

SAID = "[delivery]\nretries = 3\n"

# (name, key, words of the sentence, severity, profile, what trips it, what does not)
DANGERS = [
    ("duplicate memory shorter than the retries", "delivery.persist_duration", "are retried",
     "danger", "ebms2",
     '[delivery]\nretries = 8\nretry_interval = "PT3H"\npersist_duration = "P1D"\n',
     '[delivery]\nretries = 7\nretry_interval = "PT3H"\npersist_duration = "P1D"\n'),
    ("a patience that nobody chose", "delivery.retries", "does not say", "hint", "ebms2",
     "", "[delivery]\nretries = 3\n"),
    ("the same over two transports", "delivery.persist_duration", "are retried", "danger", "ebms2",
     '[delivery]\nretries = 4\nretry_interval = "PT3H"\ntransports = ["http", "http2"]\n',
     '[delivery]\nretries = 4\nretry_interval = "PT3H"\ntransports = ["http"]\n'),
    ("outer timeout not above the hub's retries", "delivery.timeout", "resends after", "danger",
     "ebms2",
     ('[delivery]\ntimeout = 60\n[via]\nhttp = "https://hub/"\ntimeout = 20\nretries = 2\n'
     "retry_interval = 20\n"),
     ('[delivery]\ntimeout = 61\n[via]\nhttp = "https://hub/"\ntimeout = 20\nretries = 2\n'
     "retry_interval = 20\n")),
    ("one numbered stream for all behind a hub", "sequence.scope", "share one numbered stream",
     "danger", "window",
     '[via]\nparty_id = "hub"\nhttp = "https://hub/"\n',
     ""),
    ("and none when conversations are numbered", "sequence.scope", "share one numbered stream",
     "danger", "window",
     '[via]\nhttp = "https://hub/"\n',
     '[sequence]\nscope = "conversation"\n[via]\nhttp = "https://hub/"\n'),
    ("conversations numbered through a hub that alone acknowledges", "ack.actor",
     "waits for it in vain", "error", "ebms2",
     '[ack]\nactor = "nextMSH"\n[sequence]\nordered = true\n[via]\nhttp = "https://hub/"\n',
     '[ack]\nactor = "toPartyMSH"\n[sequence]\nordered = true\n[via]\nhttp = "https://hub/"\n'),
    ("and without a hub", "ack.actor", "waits for it in vain", "error", "ebms2",
     '[ack]\nactor = "nextMSH"\n[sequence]\nordered = true\n[via]\nhttp = "https://hub/"\n',
     '[ack]\nactor = "nextMSH"\n[sequence]\nordered = true\n'),
    ("and with a hub that answers when the partner has it", "ack.actor", "waits for it in vain",
     "error", "ebms2",
     '[ack]\nactor = "nextMSH"\n[sequence]\nordered = true\n[via]\nhttp = "https://hub/"\n',
     ('[ack]\nactor = "nextMSH"\n[sequence]\nordered = true\n[hop]\n'
      'mode = "transient_until_forwarded"\n[via]\nhttp = "https://hub/"\n')),
    ("a signed acknowledgement asked for and forbidden", "ack.hop_request", "would be refused",
     "error", "ebms2",
     '[ack]\nactor = "nextMSH"\nsignature = "never"\nhop_request = "Signed"\n',
     '[ack]\nactor = "nextMSH"\nsignature = "never"\nhop_request = "Unsigned"\n'),
    ("an unsigned one where only signed ones are agreed", "ack.hop_request", "would be refused",
     "error", "ebms2",
     '[ack]\nactor = "nextMSH"\nsignature = "always"\nhop_request = "Unsigned"\n',
     ('[ack]\nactor = "nextMSH"\nsignature = "always"\nhop_request = "Unsigned"\n'
      '[delivery]\nheader_conflict = "b"\n')),
    ("lifetime longer than the memory", "delivery.time_to_live", "longer than", "danger", "ebms2",
     '[delivery]\npersist_duration = "P1D"\ntime_to_live = "P1DT1S"\n',
     '[delivery]\npersist_duration = "P1D"\ntime_to_live = "P1D"\n'),
    ("lifetime shorter than the retries", "delivery.time_to_live", "before the last", "hint",
     "ebms2",
     "[delivery]\nretries = 2\nretry_interval = 10\ntime_to_live = 30\n",
     "[delivery]\nretries = 2\nretry_interval = 10\ntime_to_live = 31\n"),
    ("no retries", "delivery.retries", "never resent", "hint", "ebms2",
     "[delivery]\nretries = 0\n", "[delivery]\nretries = 1\n"),
    ("inner connection held as long as the outer", "sync.timeout", "after the sender has left",
     "danger", "ebms2",
     ('[sync]\nmode = "mshSignalsOnly"\ntimeout = 30\n[via]\nhttp = "https://hub/"\n'
     "sync_timeout = 30\n"),
     ('[sync]\nmode = "mshSignalsOnly"\ntimeout = 30\n[via]\nhttp = "https://hub/"\n'
     "sync_timeout = 29\n")),
    ("synchronous acknowledgements through a hub", "sync.mode", "through a hub", "hint", "ebms2",
     '[sync]\nmode = "mshSignalsOnly"\n[via]\nhttp = "https://hub/"\n',
     '[sync]\nmode = "mshSignalsOnly"\n'),
    ("synchronous and ordered", "sync.mode", "exclude each other", "error", "ebms2",
     '[sync]\nmode = "mshSignalsOnly"\n[sequence]\nordered = true\n',
     '[sequence]\nordered = true\n'),
    ("response only with acknowledgements", "sync.mode", "no place", "error", "ms-0.9x",
     '[sync]\nmode = "ResponseOnly"\n',
     '[sync]\nmode = "ResponseOnly"\n[delivery]\nreliable = false\n'),
    ("acknowledgement and response that may share nothing", "sync.bundle", "share neither",
     "danger", "ebms2",
     '[sync]\nmode = "signalsAndResponse"\n[ack]\nrequest = "always"\nbundling = "standalone"\n',
     ('[sync]\nmode = "signalsAndResponse"\nbundle = "concatenated"\n'
     '[ack]\nrequest = "always"\nbundling = "standalone"\n')),
    ("synchronous over mail", "sync.mode", "cannot reply", "danger", "ebms2",
     '[sync]\nmode = "mshSignalsOnly"\n[delivery]\ntransports = ["smtp"]\n',
     '[sync]\nmode = "mshSignalsOnly"\n[delivery]\ntransports = ["http"]\n'),
    ("numbers that cannot travel", "wire.extensions", "cannot travel", "error", "ebms2",
     '[sequence]\nordered = true\nscope = "pair"\n',
     '[sequence]\nordered = true\nscope = "pair"\n[wire]\nextensions = ["hop_sequence"]\n'),
    ("the drafts carry numbers by themselves", "wire.extensions", "cannot travel", "error",
     "ebms2",
     '[sequence]\nordered = true\nscope = "pair"\n[wire]\ndialect = "ebms2"\n',
     '[sequence]\nordered = true\nscope = "pair"\n[wire]\ndialect = "ms-0.9x"\n'),
    ("order without duplicate elimination", "duplicate.elimination", "order needs", "error",
     "ebms2",
     '[sequence]\nordered = true\n[duplicate]\nelimination = "never"\n',
     '[sequence]\nordered = true\n[duplicate]\nelimination = "always"\n'),
    ("unsigned where non-repudiation is asked", "security.sign", "non-repudiation", "danger",
     "ebms2",
     "[business]\nnon_repudiation = true\n",
     "[business]\nnon_repudiation = true\n[security]\nsign = true\n"),
    ("unsigned receipts where proof is asked", "ack.signature", "non-repudiation of receipt",
     "danger", "ebms2",
     '[business]\nnon_repudiation_of_receipt = true\n[ack]\nsignature = "never"\n',
     "[business]\nnon_repudiation_of_receipt = true\n"),
    ("open where confidentiality is asked", "security.encrypt", "not encrypted", "danger", "ebms2",
     '[business]\nconfidential = "persistent"\n',
     '[business]\nconfidential = "transient"\n'),
    ("unsigned where nothing may be changed", "security.sign", "tamper-proof", "danger",
     "ebms2",
     '[business]\ntamper_proof = "persistent"\n',
     '[business]\ntamper_proof = "persistent"\n[security]\nsign = true\n'),
    ("unsigned where a document proves its sender", "security.require_signature",
     "proves its sender", "danger", "ebms2",
     '[business]\nauthenticated = "transient-and-persistent"\n',
     '[business]\nauthenticated = "transient"\n'),
    *((f"{name} on a way without TLS", f"business.{name}", "has no TLS", "danger", "ebms2",
       f'[business]\n{name} = "transient"\n[via]\nhttp = "http://hub/"\n',
       f'[business]\n{name} = "transient"\n[via]\nhttp = "https://hub/"\n')
      for name in ("confidential", "authenticated", "tamper_proof")),
    ("SHA-1", "security.signature_algorithm", "SHA-1", "danger", "ebms2",
     ('[security]\nsign = true\nallow_sha1 = true\n'
     'signature_algorithm = "http://www.w3.org/2000/09/xmldsig#rsa-sha1"\n'),
     "[security]\nsign = true\nallow_sha1 = true\n"),
    ("SHA-1 that nobody allowed", "security.allow_sha1", "not allowed", "error", "ebms2",
     '[security]\nsign = true\ndigest_algorithm = "http://www.w3.org/2000/09/xmldsig#sha1"\n',
     '[security]\ndigest_algorithm = "http://www.w3.org/2000/09/xmldsig#sha1"\n'),
    ("signatures nobody can check", "security.partner_certificates", "no certificate", "error",
     "ebms2", "[security]\nrequire_signature = true\n", "[security]\nsign = true\n"),
    ("an authority that names nobody", "security.partner_certificates", "no certificate", "error",
     "ebms2", f"[security]\nrequire_signature = true\ntrust_anchors = \"{AUTHORITY}\"\n",
     f"[security]\nrequire_signature = true\npartner_certificates = \"{AUTHORITY}\"\n"),
    ("encryption for nobody", "security.partner_encryption_certificates", "not for any", "error",
     "ebms2", "[security]\nencrypt = true\n", "[security]\nsign = true\n"),
    ("an unknown transport", "delivery.transports", "no transport http2", "error", "ebms2",
     '[delivery]\ntransports = ["http2"]\n', '[delivery]\ntransports = ["http"]\n'),
    ("a transport without an address", "partner.smtp", "no address for smtp", "error", "ebms2",
     '[delivery]\ntransports = ["smtp"]\n', '[delivery]\ntransports = ["http"]\n'),
    ("a size that cannot be kept by splitting", "payload.max_size", "split cannot travel", "hint",
     "ebms2", "[payload]\nmax_size = 1000\n",
     '[payload]\nmax_size = 1000\n[wire]\nextensions = ["split"]\n'),
    ("compression that cannot be told", "payload.compress", "compression cannot travel", "hint",
     "ebms2", '[payload]\ncompress = "gzip"\n',
     '[payload]\ncompress = "gzip"\n[wire]\nextensions = ["compression"]\n'),
    ("a document that is none", "payload.max_document", "no more than payload.max_size", "danger",
     "window", "[payload]\nmax_size = 1000\nmax_document = 1000\n",
     "[payload]\nmax_size = 1000\nmax_document = 1001\n"),
    ("a quota below one document", "payload.quota", "never fits into it", "danger",
     "window", "[payload]\nmax_document = 1001\nquota = 1000\n",
     "[payload]\nmax_document = 1000\nquota = 1000\n"),
    ("too few parts for a document", "payload.max_parts", "that many parts have", "hint",
     "window", "[payload]\nmax_size = 10\nmax_document = 1001\nmax_parts = 100\n",
     "[payload]\nmax_size = 10\nmax_document = 1000\nmax_parts = 100\n"),
    ("fragments on a numbered stream", "payload.parts", "no place in a numbered stream", "error",
     "nhs-fragments", '[flow]\nmode = "window"\nwindow = 4\n', '[flow]\nmode = "unrestricted"\n'),
    ("fragments compressed otherwise", "payload.compress", "by gzip or not at all", "error",
     "nhs-fragments", '[payload]\ncompress = "deflate"\n', '[payload]\ncompress = "gzip"\n'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "words", "severity", "profile", "bad", "good"),
    [pytest.param(*row[1:], id=row[0]) for row in DANGERS],
)
def test_a_danger_is_seen_and_its_absence_too(
    key: str, words: str, severity: str, profile: str, bad: str, good: str
) -> None:
    found = _found(samples.agreement(profile, bad), key, words)
    assert found
    for one in found:
        assert one.severity.value == severity
        assert one.fix
        assert one.cpa_id == "alpha-beta-1"
        assert one.sentence[0].islower() or one.sentence[0].isupper()
    assert not _found(samples.agreement(profile, good), key, words)


def test_a_missing_extension_is_named_with_the_key_that_agrees_on_it() -> None:
    text = '[payload]\nmax_size = 1000\ncompress = "gzip"\n'
    fixes = {one.key: one.fix for one in check(samples.agreement("ebms2", text))}
    assert '"split" in wire.extensions' in fixes["payload.max_size"]
    assert '"compression" in wire.extensions' in fixes["payload.compress"]


@pytest.mark.requirement("SYNC-20")
@pytest.mark.parametrize(
    ("reliable", "mode", "told"),
    [
        ("true", "signalsAndResponse", True),
        ("true", "mshSignalsOnly", True),
        ("true", "none", False),
        # Nothing critical: then a connection may break.
        ("false", "signalsAndResponse", False),
    ],
)
def test_synchronous_replies_through_a_hub_suit_what_is_not_critical(
    reliable: str, mode: str, told: bool
) -> None:
    text = (
        f'[delivery]\nreliable = {reliable}\n[sync]\nmode = "{mode}"\n'
        '[via]\nhttp = "https://hub/"\n'
    )
    found = _found(samples.agreement("ebms2", text), "sync.mode", "through a hub")
    assert bool(found) is told
    assert all("only where non-repudiation needs them" in one.fix for one in found)


# --- dangers of whole files --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "bad", "good"),
    [
        (
            "partner.http",
            {"partner": 'ftp = "ftp://x"', "old": "https://alpha", "new": "http://alpha"},
            {"partner": 'ftp = "ftp://x"'},
        ),
        ("own.http", {"old": "https://beta", "new": "http://beta"}, {}),
        ("partner.client_certificates", {"old": f'["{samples.FINGERPRINT}"]', "new": "[]"}, {}),
        ("own.type", {"old": 'party_id = "beta"\ntype = "urn:ex:org"', "new": 'party_id = "beta"'},
         {"old": 'party_id = "beta"\ntype = "urn:ex:org"', "new": 'party_id = "urn:beta"'}),
        ("partner.party_id", {"old": 'party_id = "alpha"', "new": 'party_id = "beta"'}, {}),
        ("status", {"top": 'status = "proposed"'}, {"top": 'status = "signed"'}),
        ("start", {"top": "start = 2026-06-02"}, {"top": "start = 2026-06-01"}),
    ],
)  # fmt: skip
def test_dangers_of_parties_and_periods(
    key: str, bad: dict[str, str], good: dict[str, str]
) -> None:
    def findings(change: dict[str, str]) -> list[Finding]:
        text = samples.toml(top=change.get("top", ""), partner=change.get("partner", ""))
        text = text.replace(change.get("old", "@"), change.get("new", "@"))
        report = check_toml(text, now=NOW)
        assert report.agreement is not None
        return [one for one in report.findings if one.key == key]

    assert findings(bad)
    assert not findings(good)


@pytest.mark.parametrize(
    ("end", "severity"),
    [("2026-06-01", Severity.ERROR), ("2026-06-20", Severity.HINT), ("2027-06-01", None)],
)
def test_an_agreement_that_ends(end: str, severity: Severity | None) -> None:
    found = _found(samples.agreement(top=f"end = {end}"), "end")
    assert [one.severity for one in found] == ([severity] if severity else [])
    # Without a time no date is judged.
    assert not [one for one in check(samples.agreement(top=f"end = {end}")) if one.key == "end"]


def test_no_address_for_errors() -> None:
    partner = 'smtp = {request = "mailto:r@example"}'
    text = samples.toml(partner=partner).replace('http = "https://alpha.example/msh"\n', "")
    report = check_toml(text)
    assert any("no address for errors" in one.sentence for one in report.findings)
    fixed = check_toml(text.replace("request =", "error ="))
    assert not any("no address for errors" in one.sentence for one in fixed.findings)


# --- certificates ------------------------------------------------------------------------------


def _certificate(start: int, end: int) -> bytes:
    """A certificate valid between two instants."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alpha")])
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(epoch + datetime.timedelta(microseconds=start))
        .not_valid_after(epoch + datetime.timedelta(microseconds=end))
        .sign(key, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.DER)


def _with_certificates(*ders: bytes) -> Agreement:
    text = "".join(to_pem(der) for der in ders)
    return samples.agreement(
        rest=f"[security]\nrequire_signature = true\npartner_certificates = '''{text}'''\n"
    )


@pytest.mark.parametrize(
    ("ends", "severities"),
    [
        ([NOW - DAY], [Severity.ERROR]),
        ([NOW + 29 * DAY], [Severity.DANGER]),
        ([NOW + 31 * DAY], []),
        # A roll-over: the old one may run out while the new one is good.
        ([NOW - DAY, NOW + 90 * DAY], [Severity.HINT]),
        ([NOW + 5 * DAY, NOW + 90 * DAY], []),
    ],
)
def test_certificates_that_expire(ends: list[int], severities: list[Severity]) -> None:
    agreement = _with_certificates(*(_certificate(NOW - 300 * DAY, end) for end in ends))
    found = _found(agreement, "security.partner_certificates")
    assert [one.severity for one in found] == severities
    assert not [one for one in check(agreement) if "expire" in one.sentence]


def test_a_certificate_of_the_future_is_a_hint() -> None:
    found = _found(
        _with_certificates(_certificate(NOW + DAY, NOW + 90 * DAY)), "security.partner_certificates"
    )
    assert [one.severity for one in found] == [Severity.HINT]


def test_a_certificate_that_cannot_be_read_is_an_error() -> None:
    found = _found(_with_certificates(b"0\x82\x01\x00nothing"), "security.partner_certificates")
    assert [one.severity for one in found] == [Severity.ERROR]


def test_the_corpus_certificates(corpus: Path) -> None:
    folder = corpus / "nav-ebxml-processor" / "certs"
    expired = (folder / "expired.qcevident.ca23.ssl.buypass.no.cer").read_bytes()
    text = samples.toml(
        rest='[security]\nrequire_signature = true\npartner_certificates = "x.cer"\n'
    )
    report = check_toml(text, load={"x.cer": expired}.__getitem__, now=NOW)
    assert any("expired at" in one.sentence for one in report.findings)
    assert not report.ok


# --- profiles, CPAs, collections ---------------------------------------------------------------


def test_digikoppelings_own_defaults_trip_the_memory() -> None:
    for name in ("digikoppeling-osb-rm", "digikoppeling-osb-rm-s", "digikoppeling-osb-rm-e"):
        (found,) = _found(samples.agreement(name), "delivery.persist_duration")
        assert "P1DT3H" in found.sentence
        assert found.severity is Severity.DANGER


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_no_profile_is_wrong_by_itself(profile: str) -> None:
    wrong = {one.key for one in check(samples.agreement(profile)) if one.severity is Severity.ERROR}
    assert wrong <= {
        "security.partner_certificates", "security.partner_encryption_certificates",
        "partner.smtp",
    }  # fmt: skip


def test_one_danger_lists_everything_it_concerns() -> None:
    agreement = samples.agreement(
        rest="""
        [delivery]
        retries = 0
        [[actions]]
        service = "urn:ex:orders"
        """
    )
    (found,) = _found(agreement, "delivery.retries")
    assert found.scopes == (
        "send: any message",
        "receive: any message",
        "send: urn:ex:orders",
        "receive: urn:ex:orders",
    )


def test_the_worst_comes_first_and_json_carries_all() -> None:
    found = check(samples.agreement(rest="[delivery]\nretries = 0\ntransports = ['http2']\n"))
    order = [list(Severity).index(one.severity) for one in found]
    assert order == sorted(order)
    assert len(set(order)) > 1
    again = json.loads(json.dumps([one.as_dict() for one in found]))
    assert again[0]["severity"] == "error"
    assert set(again[0]) == {"severity", "key", "sentence", "fix", "cpa_id", "scopes"}


def test_a_good_agreement_has_nothing_to_say() -> None:
    assert check(samples.agreement(rest=SAID), now=NOW) == ()


def test_a_file_that_cannot_be_read_is_reported_and_not_raised() -> None:
    report = check_toml(samples.toml(rest="[delivery]\nretrys = 3\n"))
    assert report.agreement is None
    assert not report.ok
    (found,) = report.findings
    assert (found.severity, found.key) == (Severity.ERROR, "delivery.retrys")
    assert found.fix == "did you mean delivery.retries?"


@pytest.mark.parametrize(
    ("profile", "rest", "key", "words"),
    [
        ("window", "[sequence]\nrange = [0, 9]\n[flow]\nwindow = 6\n", "", "more than half"),
        ("rm-0.78", '[delivery]\ntransports = ["http", "smtp"]\n', "sequence.scope",
         "per transport"),
        ("ms-0.9x",
         '[sequence]\nnumbered = true\nscope = "triple"\n[delivery]\ntransports = ["a", "b"]\n',
         "sequence.scope", "per transport"),
        ("rm-0.78", '[flow]\nmode = "window"\n', "sequence.on_gap", "gaps are rejected"),
    ],
)  # fmt: skip
def test_contradictions_are_found_before_they_cost_a_message(
    profile: str, rest: str, key: str, words: str
) -> None:
    report = check_toml(samples.toml(profile, rest))
    (found,) = report.findings
    assert words in found.sentence
    assert found.severity is Severity.ERROR
    assert not key or found.key == key


def test_a_cpa_is_checked_from_one_side(corpus: Path) -> None:
    path = corpus / "hermes/cpa/ebIOT-CPAT1-4-I.CECID.I3T.xml"
    report = check_cpa(path.read_bytes(), own="CECID", now=NOW)
    keys = _keys(report.findings)
    assert (Severity.DANGER, "delivery.persist_duration") in keys
    assert (Severity.ERROR, "end") in keys
    assert not report.ok
    broken = check_cpa(b"<x/>", own="CECID")
    assert broken.agreement is None
    assert broken.findings[0].severity is Severity.ERROR
    old = (corpus / "phinms-phineas/cpa/loopback.xml").read_bytes()
    us, them = Party.of("a", "zz"), Party.of("b", "zz")
    report = check_cpa(old, own=0, own_party=us, partner_party=them)
    assert report.agreement is not None


def test_what_a_cpa_wants_and_we_lack_is_said(corpus: Path) -> None:
    path = corpus / "nav-ebxml-processor/cpa/nav-qass-35065.xml"
    view = read_cpa(path.read_bytes(), own="NAV")
    assert any("S/MIME" in one.sentence for one in check(view))


def test_algorithms_are_judged_against_those_there_are() -> None:
    agreement = samples.agreement(rest="[security]\nsign = true\nencrypt = true\n")
    security = agreement.sending.security
    known = {
        security.signature_algorithm, security.digest_algorithm, security.canonicalization,
        security.encryption_algorithm, security.key_transport,
    }  # fmt: skip
    for uri in known:
        found = check(agreement, abilities=Abilities(TRANSPORTS, known - {uri}))
        assert [one.severity for one in found if uri in one.sentence] == [Severity.ERROR]
    able = Abilities(TRANSPORTS, known)
    assert not [one for one in check(agreement, abilities=able) if "algorithm" in one.sentence]
    assert not [one for one in check(agreement) if "algorithm" in one.sentence]
    # What is not used is not judged.
    assert check(samples.agreement(rest=SAID), abilities=Abilities(TRANSPORTS, ())) == ()
    signed = samples.toml(rest="[security]\nsign = true\n")
    report = check_toml(signed, abilities=Abilities(TRANSPORTS, ()))
    assert not report.ok


@pytest.mark.parametrize(
    ("rest", "key", "severity"),
    [
        ('[delivery]\ntransports = ["smtp"]\n', "delivery.transports", Severity.ERROR),
        ('[delivery]\ntransports = ["http", "smtp"]\n', "delivery.transports", Severity.DANGER),
        ('[payload]\ncompress = "lzma"\nmax_size = 9\n', "payload.compress", Severity.ERROR),
        ('[payload]\ncompress = "gzip"\n', "payload.compress", Severity.HINT),
        (
            "[payload]\nmax_size = 1000\n[delivery]\nreliable = false\n",
            "payload.max_size",
            Severity.HINT,
        ),
    ],
)
def test_what_is_not_built_is_named(rest: str, key: str, severity: Severity) -> None:
    mail = 'smtp = "mailto:msh@alpha.example"'
    agreement = samples.agreement("ms-0.9x", rest, partner=mail, own=mail)
    able = Abilities(("http",), ())
    assert (key, severity) in {(one.key, one.severity) for one in check(agreement, abilities=able)}
    usual = samples.agreement("ms-0.9x", '[payload]\nmax_size = "none"\n')
    assert key not in {one.key for one in check(usual, abilities=able)}


def test_an_agreement_that_only_unbuilt_transports_serve_is_refused() -> None:
    mail = 'smtp = "mailto:msh@alpha.example"'
    only = samples.agreement(rest='[delivery]\ntransports = ["smtp"]\n', partner=mail, own=mail)
    with pytest.raises(AgreementProblem, match="goes over smtp, which cannot be used yet"):
        refuse_unable(only, Abilities(("http",), ()))
    refuse_unable(only, Abilities(("http", "smtp"), ()))
    both = samples.agreement(
        rest='[delivery]\ntransports = ["smtp", "http"]\n', partner=mail, own=mail
    )
    refuse_unable(both, Abilities(("http",), ()))


def _hub(outer: str, inner: str) -> tuple[Agreement, Agreement]:
    before = samples.agreement("ms-0.9x", outer, top="forwards = true")
    onward = samples.agreement("ms-0.9x", inner, top="forwards = true")
    gamma = replace(onward.partner, party=Party.of("gamma", "urn:ex:org"))
    return replace(before, cpa_id="hub-alpha"), replace(onward, cpa_id="hub-gamma", partner=gamma)


def test_a_hub_is_checked_over_both_its_hops() -> None:
    slow = "[delivery]\ntimeout = 10\nretries = 2\nretry_interval = 10\n"
    patient = "[delivery]\ntimeout = 31\nretries = 0\nretry_interval = 1\n"
    found = [
        one for one in check_all(_hub(patient, slow), now=NOW) if one.key == "delivery.timeout"
    ]
    # From gamma to alpha the outer timer is the short one; from alpha to gamma all is well.
    assert [one.cpa_id for one in found] == ["hub-gamma"]
    hasty = patient.replace("31", "30")
    both = check_all(_hub(hasty, slow), now=NOW)
    assert {one.cpa_id for one in both if one.key == "delivery.timeout"} == {
        "hub-alpha",
        "hub-gamma",
    }
    sync = '[sync]\nmode = "AcksOnly"\ntimeout = {}\n'
    held = check_all(_hub(sync.format(20), sync.format(10)))
    assert [one.cpa_id for one in held if one.key == "sync.timeout"] == ["hub-gamma"]
    quiet = check_all(replace(one, forwards=False) for one in _hub(hasty, slow))
    assert not [one for one in quiet if one.key == "delivery.timeout"]


def test_a_hub_that_takes_responsibility_may_be_slow() -> None:
    hop = '[ack]\nactor = "nextMSH"\n[delivery]\ntimeout = 1\n[via]\nhttp = "https://hub/"\n'
    slow = "retries = 9\nretry_interval = 9\n"
    assert not _found(samples.agreement("ebms2", hop + slow), "delivery.timeout")
    transparent = hop.replace("[via]", '[hop]\nmode = "transparent"\n[via]')
    assert _found(samples.agreement("ebms2", transparent + slow), "delivery.timeout")


def test_agreements_are_checked_together() -> None:
    known = samples.agreement(rest=SAID)
    found = check_all([known, known])
    assert any("same parties" in one.sentence for one in found)
    assert not check_all([known], now=NOW)


def test_two_who_claim_one_party_are_told_of() -> None:
    known = samples.agreement()
    same = replace(known, cpa_id="second")
    assert not [one for one in check_all([known, same]) if one.key == "partner.party_id"]
    other = replace(same, partner=replace(same.partner, client_certificates=("cd" * 32,)))
    (found,) = [one for one in check_all([known, other]) if one.key == "partner.party_id"]
    assert found.severity is Severity.DANGER
    assert (found.cpa_id, known.cpa_id in found.sentence) == ("second", True)
    named = replace(known, partner=replace(known.partner, party=Party.of("gamma", "urn:ex:org")))
    (twin,) = [one for one in check_all([known, named]) if one.key == "cpa_id"]
    assert twin.severity is Severity.HINT


def test_the_longest_retry_is_the_terms_own() -> None:
    terms = samples.agreement("digikoppeling-osb-rm").sending.terms
    assert terms.longest_retry == 27 * 3600 * SECOND


# --- who is known by a certificate alone -------------------------------------------------------


@pytest.mark.parametrize(
    ("partner", "old", "rest", "warned"),
    [
        ("", "", "", False),
        ("", "https://alpha", "", True),
        ('smtp = "mailto:msh@alpha"', "", "", True),
        ("", "https://alpha", "[security]\nrequire_signature = true\n", False),
        ('smtp = "mailto:msh@alpha"', "", "[security]\nrequire_signature = true\n", False),
    ],
)
def test_what_shows_no_certificate_is_warned_of(
    partner: str, old: str, rest: str, warned: bool
) -> None:
    text = samples.toml(rest=rest, partner=partner)
    if old:
        text = text.replace(old, "http://alpha")
    report = check_toml(text, now=NOW)
    assert any("known by a TLS certificate" in one.sentence for one in report.findings) is warned
