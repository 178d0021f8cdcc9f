"""A foreign CPA goes in, and the handler that runs answers as its makers' messages expect.

The templates of ebms-core are posted to a socket; what must come back is what the corpus' index
says of each, status, code and location.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from lxml import etree

from oncewire.entry.messages.submitting import SendOptions, find_agreement, submission_of
from oncewire.entry.party.agreements import load_readable
from oncewire.entry.party.folder import KeyKind, make_party
from oncewire.entry.party.settings import load
from oncewire.errors import ValueNotRecognized
from oncewire.handler.world import RealWorld
from oncewire.message.envelope import MessageKind
from oncewire.message.ids import Service
from oncewire.message.instant import HOUR, format_instant
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel, ReadFault
from tests.agreement.cppa.cpa_rules import alike, all_of, problems, said
from tests.agreement.cppa.test_corpus_cpas import STATED
from tests.agreement.readings import party_ids
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.handler.corpus_cases import ARRIVING, DIGIPOORT
from tests.handler.samples import filled
from tests.ports import free_port

CPA = "ebms-core/cpa/cpaStubEBF.rm.http.unsigned.sync.xml"
TEMPLATES = sorted(name for name in ARRIVING if name.startswith("ebms-core/soap/"))


@dataclass
class Overheid:
    """The receiver of the templates: a party made by `init`, its CPA by `agreement import`."""

    folder: Path
    served: Served
    corpus: Path
    headers: dict[str, str] = field(
        default_factory=lambda: {"Content-Type": "text/xml; charset=UTF-8", "SOAPAction": '"ebXML"'}
    )

    def post(self, template: str, **over: str) -> tuple[int, bytes]:
        """Post a template of the corpus, its placeholders filled; status and body come back."""
        now = RealWorld().now()
        values = DIGIPOORT | {
            "uuid": uuid4().hex,
            "timestamp": format_instant(now),
            "timeToLive": format_instant(now + HOUR),
            **over,
        }
        body = filled((self.corpus / template).read_bytes(), values)
        port = int((self.folder / "port").read_text())
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            # The path is the one that the CPA names, not the one of the settings.
            connection.request("POST", "/ebms", body, self.headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def overheid(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Iterator[Overheid]:
    folder, port = tmp_path_factory.mktemp("foreign"), free_port()
    make_party(
        folder / "overheid", "overheid", now=RealWorld().now(), port=port, key_kind=KeyKind.EC,
        party_id="00000000000000000001", party_type="urn:osb:oin",
    )  # fmt: skip
    (folder / "port").write_text(str(port))
    run("agreement", "import", corpus / CPA, "-c", folder / "overheid")
    with Served(folder, "overheid") as served:
        yield Overheid(folder, served, corpus)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_gets_the_answer_that_the_index_gives(overheid: Overheid, template: str) -> None:
    case = ARRIVING[template]
    status, body = overheid.post(template)
    assert status == case.status == 200
    answer = codec.read(Parcel("text/xml; charset=UTF-8", body)).message
    assert answer.kind is case.kind
    if case.error is not None:
        assert answer.error_list is not None
        error = answer.error_list.errors[0]
        assert (error.code, error.location, error.severity.value) == (*case.error, "Error")


def test_a_second_copy_gets_the_same_acknowledgement(overheid: Overheid) -> None:
    uuid, now = uuid4().hex, RealWorld().now()
    said = {
        "uuid": uuid,
        "timestamp": format_instant(now),
        "timeToLive": format_instant(now + HOUR),
    }
    first = overheid.post("ebms-core/soap/EbMSMessage.xml", **said)
    assert overheid.post("ebms-core/soap/EbMSMessage.xml", **said) == first
    taken = run_json("inbox", "-c", overheid.folder / "overheid")
    assert [row["message_id"] for row in taken["messages"]].count(f"{uuid}@localhost") == 1


@pytest.mark.parametrize("action", [None, "", '""', '"other"'])
def test_without_the_soap_action_there_is_a_fault(overheid: Overheid, action: str | None) -> None:
    headers = {"Content-Type": "text/xml; charset=UTF-8"}
    if action is not None:
        headers["SOAPAction"] = action
    status, body = Overheid(overheid.folder, overheid.served, overheid.corpus, headers).post(
        "ebms-core/soap/EbMSMessage.xml"
    )
    assert (status, fault_of(body)) == (500, "Client")


def test_an_unknown_cpa_is_a_fault(overheid: Overheid) -> None:
    status, body = overheid.post("ebms-core/soap/EbMSMessage.xml", cpaId="unknown")
    assert (status, fault_of(body)) == (500, "Client")


def test_what_has_expired_is_told_so(overheid: Overheid) -> None:
    status, body = overheid.post(
        "ebms-core/soap/EbMSMessage.xml", timeToLive="2020-01-01T00:00:00Z"
    )
    answer = codec.read(Parcel("text/xml; charset=UTF-8", body)).message
    assert status == 200
    assert answer.error_list is not None
    assert answer.error_list.errors[0].code == "TimeToLiveExpired"


def test_a_status_request_hears_received_then_processed(overheid: Overheid, tmp_path: Path) -> None:
    uuid = uuid4().hex

    def asked() -> str:
        _, body = overheid.post("ebms-core/soap/EbMSMessageStatus.xml", refToMessageId=uuid)
        answer = codec.read(Parcel("text/xml; charset=UTF-8", body)).message
        assert answer.kind is MessageKind.STATUS_RESPONSE
        assert answer.status_response is not None
        return answer.status_response.status.value

    assert asked() == "NotRecognized"
    overheid.post("ebms-core/soap/EbMSMessage.xml", uuid=uuid)
    assert asked() == "Received"
    run("inbox", "take", "--output", tmp_path / "in", "-c", overheid.folder / "overheid")
    assert asked() == "Processed"


def fault_of(body: bytes) -> str:
    """The code of a SOAP Fault."""
    with pytest.raises(ReadFault) as caught:
        codec.read(Parcel("text/xml; charset=UTF-8", body))
    assert caught.value.fault is not None
    return caught.value.fault.code


# --- what import says --------------------------------------------------------------------------

CPAS = "ebms-core/cpa", "hermes/cpa", "nav-ebxml-processor/cpa"


@pytest.mark.long
def test_every_cpa_of_the_corpus_is_imported(corpus: Path, tmp_path: Path) -> None:
    """Also those that have ended, and those whose mail cannot be used yet: in words."""
    folder = tmp_path / "party"
    make_party(folder, "party", now=RealWorld().now(), key_kind=KeyKind.EC)
    files = [file for place in CPAS for file in sorted((corpus / place).glob("*.xml"))]
    assert len(files) > 20
    said = set()
    for number, file in enumerate(files):
        own = "CECID" if "hermes" in str(file) else "79768" if "nav" in str(file) else ""
        name = f"p{number}"
        words = ["agreement", "import", file, "-c", folder, "--name", name, "--replace"]
        done = run_json(*words, "--own", own or "00000000000000000001")
        for finding in done["findings"]:
            said.add((finding["severity"], finding["key"]))
        shutil.rmtree(folder / "agreements")
        (folder / "agreements").mkdir()
    assert ("error", "end") in said
    assert ("error", "delivery.transports") in said


def test_the_agreement_of_phinms_is_refused_by_name(corpus: Path, tmp_path: Path) -> None:
    done = run(
        "agreement", "import", corpus / "phinms-phineas/cpa/loopback.xml", "--check",
        exit_code=None,
    )  # fmt: skip
    assert done.exit_code == 2
    assert "PHINMS" in done.stderr
    assert "--profile phinms" in done.stderr


def test_check_writes_nothing_and_tells_every_value_and_its_place(
    corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "party"
    make_party(folder, "party", now=RealWorld().now(), key_kind=KeyKind.EC)
    done = run_json(
        "agreement", "import", corpus / CPA, "--check", "--own", "urn:osb:oin:00000000000000000001",
        "-c", folder,
    )  # fmt: skip
    assert {row["origin"] for row in done["values"]} == {"CPA"}
    assert "--all" in done["summary"]
    every = run_json(
        "agreement", "import", corpus / CPA, "--check", "--own", "urn:osb:oin:00000000000000000001",
        "-c", folder, "--all",
    )["values"]  # fmt: skip
    assert len(every) > len(done["values"])
    assert {row["origin"] for row in every} == {"CPA", "profile", "default"}
    rows = {row["key"]: row for row in done["values"] if row["scope"] == "agreement"}
    assert rows["sync.mode"]["value"] == "signalsAndResponse"
    assert rows["sync.mode"]["where"].startswith("DeliveryChannel ")
    assert list((folder / "agreements").iterdir()) == []


def test_own_is_found_by_our_certificate(corpus: Path, tmp_path: Path) -> None:
    """Where neither PartyId nor name is ours, but one party's key is."""
    folder = tmp_path / "party"
    made = make_party(folder, "party", now=RealWorld().now(), key_kind=KeyKind.RSA)
    file = corpus / "ebms-core/cpa/cpaStubEBF.rm.https.signed-sha256.xml"
    refused = run("agreement", "import", file, "-c", folder, exit_code=None)
    assert refused.exit_code == 2
    assert "it is not clear which party we are" in refused.stderr
    assert "Logius" in refused.stderr
    text = file.read_text()
    head, mark, tail = text.partition('certId="OVERHEID_SigningCert"')
    begin, end = tail.index("<X509Certificate>") + 17, tail.index("</X509Certificate>")
    ours = "".join(made.keys.certificate.read_text().splitlines()[1:-1])
    changed = tmp_path / "ours.xml"
    changed.write_text(head + mark + tail[:begin] + ours + tail[end:])
    done = run_json("agreement", "import", changed, "-c", folder)
    assert done["own"] == "urn:osb:oin|00000000000000000001"
    assert done["own_found_by"] == "our certificate"


def test_a_key_that_is_not_the_cpas_is_told_at_import_and_by_the_doctor(
    corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "party"
    make_party(folder, "party", now=RealWorld().now(), key_kind=KeyKind.RSA)
    file = corpus / "ebms-core/cpa/cpaStubEBF.rm.http.signed-sha256.xml"
    done = run_json("agreement", "import", file, "-c", folder, "--own", "Overheid")
    assert ("danger", "own.certificates") in {
        (finding["severity"], finding["key"]) for finding in done["findings"]
    }
    checked = run_json("config", "check", "-c", folder, exit_code=None)
    assert "the partner will not believe it" in str(checked)
    looked = run_json("doctor", "--no-partners", "-c", folder, exit_code=None)
    assert "the partner will not believe it" in str(looked)


def test_a_second_cpa_with_the_same_partner_has_a_name_of_its_own(
    corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "party"
    make_party(folder, "party", now=RealWorld().now(), key_kind=KeyKind.EC)
    names = []
    for kind in ("rm.http.unsigned.sync", "rm.http.signed-sha256"):
        file = corpus / f"ebms-core/cpa/cpaStubEBF.{kind}.xml"
        done = run_json("agreement", "import", file, "-c", folder, "--own", "Overheid")
        names.append(done["name"])
    assert names == ["logius", "cpastubebf-rm-http-signed-sha256"]
    again = run("agreement", "import", file, "-c", folder, "--own", "Overheid", exit_code=None)
    assert again.exit_code == 4


def test_what_cannot_be_honoured_is_named_and_refused(corpus: Path, tmp_path: Path) -> None:
    text = (corpus / "ebms-core/cpa/cpaStubEBF.rm.http.signed-sha256.xml").read_text()
    odd = tmp_path / "odd.xml"
    odd.write_text(text.replace("xmldsig-more#rsa-sha256", "xmldsig-more#rsa-whirlpool"))
    done = run("agreement", "import", odd, "--check", "--own", "Overheid", exit_code=None)
    assert done.exit_code == 2
    assert "rsa-whirlpool is not offered" in done.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("said", "instead", "sentence"),
    [
        ('syncReplyMode="none"', 'syncReplyMode="mshSignalsOnly"', "exclude each other"),
        ('duplicateElimination="always"', 'duplicateElimination="never"', "order needs"),
    ],
)
def test_a_cpa_that_contradicts_itself_is_refused_in_a_sentence(
    corpus: Path, tmp_path: Path, said: str, instead: str, sentence: str
) -> None:
    text = (corpus / "hermes/cpa/ebIOT-CPAT5-4.CECID.I3T.xml").read_text()
    odd = tmp_path / "odd.xml"
    assert said in text
    odd.write_text(text.replace(said, instead))
    done = run("agreement", "import", odd, "--check", "--own", "CECID", exit_code=None)
    assert done.exit_code == 2
    assert sentence in done.stderr.replace("\n", " ")


def test_one_that_ends_before_it_starts_is_refused_in_a_sentence(
    corpus: Path, tmp_path: Path
) -> None:
    text = (corpus / CPA).read_text()
    odd = tmp_path / "odd.xml"
    odd.write_text(text.replace(">2031-01-01T00:00:00Z<", ">2001-01-01T00:00:00Z<"))
    done = run("agreement", "import", odd, "--check", "--own", "Overheid", exit_code=None)
    assert done.exit_code == 2
    assert "ends before it starts" in done.stderr


# --- exchanging under it -----------------------------------------------------------------------


WAYS = ("smtp",)


def two_parties(folder: Path, cpa: Path, *, tls: bool) -> Path:
    """Both sides of a CPA on this machine: their keys and ports put into it, nothing else."""
    ports = {"logius": free_port(), "overheid": free_port()}
    certificates = {}
    for number, (name, port) in enumerate(ports.items()):
        made = make_party(
            folder / name, name, now=RealWorld().now(), port=port, tls=tls, key_kind=KeyKind.RSA,
            party_id=f"{number:020}", party_type="urn:osb:oin",
        )  # fmt: skip
        certificates[name] = "".join(made.keys.certificate.read_text().splitlines()[1:-1])
    text = cpa.read_text().replace(":8888/", f":{ports['logius']}/")
    text = text.replace(":8088/", f":{ports['overheid']}/")
    first, mark, second = text.partition("</tns:PartyInfo>")

    def keyed(part: str, name: str) -> str:
        shown = r"(<(?:\w+:)?X509Certificate>)[^<]+"
        return re.sub(shown, lambda found: found[1] + certificates[name], part)

    changed = folder / "contract.xml"
    changed.write_text(keyed(first, "logius") + mark + keyed(second, "overheid"))
    return changed


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "tls"),
    [
        ("rm.http.unsigned.sync", False),
        ("rm.http.signed-sha256", False),
        ("rm.https.signed-sha256", True),
        ("rm.https.signed.encrypted", True),
        ("be.https.signed.sync", True),
    ],
)
def test_two_parties_exchange_under_a_foreign_cpa_and_believe_its_certificates_alone(
    corpus: Path, tmp_path: Path, kind: str, tls: bool
) -> None:
    cpa = two_parties(tmp_path, corpus / f"ebms-core/cpa/cpaStubEBF.{kind}.xml", tls=tls)
    for name in ("logius", "overheid"):
        run("agreement", "import", cpa, "-c", tmp_path / name)
        assert list((tmp_path / name / "keys" / "partners").iterdir()) == []
    with Served(tmp_path) as served:
        for name in ("logius", "overheid"):
            served.start(name)
        order = tmp_path / "order.xml"
        order.write_text("<order/>")
        run(
            "send", order, "--to", "logius", "--service", "osb:aanleveren:1.1$1.0",
            "--action", "aanleveren", "--wait", "-c", tmp_path / "overheid",
        )  # fmt: skip
        run("inbox", "take", "--output", tmp_path / "in", "-c", tmp_path / "logius")
        (taken,) = (tmp_path / "in").glob("*.xml")
        assert taken.read_text() == "<order/>"
        (facts,) = (tmp_path / "in").glob("*.message.json")
        assert json.loads(facts.read_text())["service_type"] == "urn:osb:services"


def test_every_spelling_that_is_printed_is_understood(corpus: Path, tmp_path: Path) -> None:
    """What `import`, `agreement show` and `partner list` print is what `send` takes."""
    folder = tmp_path / "party"
    make_party(folder, "party", now=RealWorld().now(), key_kind=KeyKind.EC)
    own = ("--own", "urn:osb:oin|00000000000000000001")
    done = run_json("agreement", "import", corpus / CPA, *own, "-c", folder)
    (listed,) = run_json("partner", "list", "-c", folder)["partners"]
    assert listed["party_id"] == done["partner"]
    settings = load(folder, environ={}).settings
    readable = load_readable(settings)
    agreement = find_agreement(readable, "logius")
    for word in (done["partner"], str(agreement.partner.party), "00000000000000000000"):
        assert find_agreement(readable, word) == agreement
    shown = run_json("agreement", "show", "logius", "-c", folder)["values"]
    scopes = {row["scope"] for row in shown if row["scope"].startswith("send: ")} - {
        "send: any message"
    }
    assert scopes
    for scope in scopes:
        service, _, action = scope.removeprefix("send: ").rpartition(" / ")
        for spelling in (service, service.replace("|", ":"), service.rpartition("|")[2]):
            submission = submission_of(agreement, (), SendOptions(spelling, action))
            assert submission.service == Service.read(service)
            assert submission.service.type == "urn:osb:services"
    with pytest.raises(ValueNotRecognized) as refused:
        submission_of(agreement, (), SendOptions("urn:osb:services|other", "aanleveren"))
    assert "urn:osb:services|osb:aanleveren:1.1$1.0 / aanleveren" in refused.value.remedy


@pytest.mark.parametrize("name", STATED)
def test_a_cpa_that_was_imported_is_exported_as_it_came(
    corpus: Path, tmp_path: Path, name: str
) -> None:
    """Equal in every element, attribute and text, whichever of its parties we are."""
    source = (corpus / name).read_bytes()
    for position, (_, ids) in enumerate(party_ids(source)):
        folder = tmp_path / f"party{position}"
        make_party(folder, "party", now=RealWorld().now(), key_kind=KeyKind.EC, transports=WAYS)
        own = ("--own", ids[0].spelled)
        run("agreement", "import", corpus / name, *own, "--name", "partner", "-c", folder)
        made = folder / "made.xml"
        run("agreement", "export", "partner", "--cpa", "-o", made, "-c", folder)
        assert alike(etree.fromstring(made.read_bytes()), etree.fromstring(source))


def test_what_the_file_says_over_its_cpa_is_exported(corpus: Path, tmp_path: Path) -> None:
    """Routing is a party's own matter; another term makes another CPA."""
    folder = tmp_path / "party"
    make_party(folder, "party", now=RealWorld().now(), key_kind=KeyKind.EC)
    run("agreement", "import", corpus / CPA, "--own", "Overheid", "-c", folder)
    file, first, second = folder / "agreements" / "logius.toml", tmp_path / "1", tmp_path / "2"
    text = file.read_text()
    file.write_text(text.replace("cpa = ", 'also_known_as = ["x"]\ncpa = '))
    run("agreement", "export", "logius", "--cpa", "-o", first, "-c", folder)
    assert first.read_bytes() == (corpus / CPA).read_bytes()
    file.write_text(text + "\n[delivery]\nretries = 7\n")
    run("agreement", "export", "logius", "--cpa", "-o", second, "-c", folder)
    assert b"<tns:Retries>7</tns:Retries>" in second.read_bytes()
    assert problems(second.read_bytes()) == []


def test_a_partner_takes_the_cpa_that_we_export(tmp_path: Path) -> None:
    """One side writes the agreement, the other has nothing but the CPA of it; what is sent has the
    Service, the action and the roles that the CPA says."""
    ports = {"acme": free_port(), "globex": free_port()}
    for name, port in ports.items():
        make_party(
            tmp_path / name, name, now=RealWorld().now(), port=port, tls=True, key_kind=KeyKind.EC
        )
    run("partner", "add", tmp_path / "globex", "--ordered", "-c", tmp_path / "acme")
    cpa = tmp_path / "contract.xml"
    words = ("agreement", "export", "globex", "--cpa", "-o", cpa, "-c", tmp_path / "acme")
    refused = run(*words, exit_code=None)
    assert refused.exit_code == 2
    assert "role" in refused.stderr
    assert not cpa.exists()
    run("partner", "add", tmp_path / "globex", "--ordered", "--replace", "--role", "Buyer",
        "--partner-role", "Seller", "-c", tmp_path / "acme")  # fmt: skip
    run(*words)
    assert problems(cpa.read_bytes()) == []
    run("agreement", "import", cpa, "-c", tmp_path / "globex")
    with Served(tmp_path) as served:
        for name in ports:
            served.start(name)
        (tmp_path / "order.xml").write_text("<order/>")
        words = ("--to", "globex", "--wait", "--timeout", "60", "-c", tmp_path / "acme")
        run("send", tmp_path / "order.xml", *words)
        run("inbox", "take", "--output", tmp_path / "in", "-c", tmp_path / "globex")
    (taken,) = (tmp_path / "in").glob("*.xml")
    assert taken.read_text() == "<order/>"
    (sent,) = run_json("outbox", "-c", tmp_path / "acme")["messages"]
    raw = tmp_path / "raw"
    run("show", sent["message_id"], "--raw", "-o", raw, "-c", tmp_path / "acme")
    root = etree.fromstring(cpa.read_bytes())
    (service,) = {one.text for one in all_of(root, "Service")}
    (action,) = {said(one, "action") for one in all_of(root, "ThisPartyActionBinding")}
    for word in (service, action, "Buyer", "Seller"):
        assert f">{word}</".encode() in raw.read_bytes(), word
