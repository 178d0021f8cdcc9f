"""Files of every kind are opened, shown and compared."""

import json
from pathlib import Path

import pytest

from oncewire.errors import Inconsistent, SoapFault
from oncewire.message.envelope import MessageKind
from oncewire.message.form import Dialect, Form
from oncewire.wire import answers, codec, inspection, soap
from oncewire.wire.codec import Parcel, ReadFault
from oncewire.wire.inspection import Capture, CaptureKind, open_capture
from tests.wire import samples
from tests.wire.roots import read_fault
from tests.wire.samples import NOW, corpus_bytes, envelope_for


def http(parcel: Parcel, start: str, *extra: str, end: str = "\r\n") -> bytes:
    lines = [start, f"Content-Type: {parcel.content_type}", *extra, "", ""]
    return end.join(lines).encode() + parcel.body


def test_each_kind_is_recognised() -> None:
    parcel = samples.written(Dialect.EBMS2)
    kinds = {
        http(parcel, "POST /msh HTTP/1.1"): CaptureKind.HTTP_REQUEST,
        http(parcel, "POST /msh HTTP/1.1", end="\n"): CaptureKind.HTTP_REQUEST,
        http(parcel, "HTTP/1.1 200 OK"): CaptureKind.HTTP_RESPONSE,
        http(parcel, "Subject: mail"): CaptureKind.MAIL,
        parcel.body: CaptureKind.MULTIPART,
        codec.read(parcel).envelope: CaptureKind.XML,
        b"\xef\xbb\xbf" + codec.read(parcel).envelope: CaptureKind.XML,
    }
    for data, kind in kinds.items():
        capture = open_capture(data)
        assert capture.kind is kind
        values = inspection.describe_bytes(data)
        assert values["message_id"] == "m-1001@alpha.example", values
        if kind is not CaptureKind.XML:
            assert values["parts"][0]["sha256"] == samples.ORDER.digest
    assert open_capture(http(parcel, "HTTP/1.1 503 Busy")).status == 503


def test_chunks_are_put_together() -> None:
    parcel = samples.written(Dialect.EBMS2)
    chunked = b""
    for start in range(0, len(parcel.body), 100):
        piece = parcel.body[start : start + 100]
        chunked += f"{len(piece):X};x=y\r\n".encode() + piece + b"\r\n"
    data = http(
        Parcel(parcel.content_type, chunked + b"0\r\n\r\n"),
        "POST / HTTP/1.1",
        "Transfer-Encoding: chunked",
    )
    assert open_capture(data).parcel.body == parcel.body
    with pytest.raises(ReadFault, match="chunks"):
        open_capture(data.replace(b"64;x=y", b"zz;x=y"))


@pytest.mark.parametrize("data", [b"", b"Message\n", b"\x00\x01\x02", b"hello world: no"])
def test_what_is_nothing_known_is_refused(data: bytes) -> None:
    with pytest.raises(ReadFault) as caught:
        open_capture(data)
    assert isinstance(caught.value.error, SoapFault)
    assert inspection.describe_bytes(data)["fault"]["code"] == "Client"


@pytest.mark.parametrize("dialect", list(Dialect))
def test_everything_decoded_can_be_printed_as_json(dialect: Dialect) -> None:
    parcel = samples.written(dialect, (samples.ORDER, samples.PICTURE))
    values = inspection.describe_bytes(http(parcel, "POST / HTTP/1.1"))
    again = json.loads(json.dumps(values))
    assert again["dialect"] == dialect.value
    assert again["from"]["ids"][0]["value"] == "alpha"
    assert again["semantics"] == "OnceAndOnlyOnce"
    assert again["signature"] == "none"
    assert [part["size"] for part in again["parts"]] == [samples.ORDER.size, samples.PICTURE.size]
    assert again["sequence"]["number"] == 1
    assert again["sequence"]["scope"] == "hop"


def test_a_fault_is_shown_as_the_error_it_is_answered_with() -> None:
    parcel = Parcel("text/xml", samples.soap(samples.MESSAGE_HEADER.replace("2.0", "3")))
    values = inspection.describe(Capture(CaptureKind.HTTP_REQUEST, parcel))
    assert values["fault"]["code"] == "Inconsistent"
    assert values["fault"]["location"] == "//Header/MessageHeader/@version"
    assert values["answered_with"] == "ErrorList"
    assert values["known"]["message_id"] == "m-1@alpha.example"


def test_the_state_of_a_signature_is_shown(corpus: Path) -> None:
    def state(name: str) -> str:
        values = inspection.describe_bytes(corpus_bytes(corpus, f"nav-smtp-transport/{name}"))
        return str(values["signature"])

    assert state("acknowledgment_no_from.eml") == "intact"
    # Its payload was cut to 93 bytes: the digest of the part does not fit.
    assert state("inntektsforesporsel.eml") == "broken"


def test_a_verdict_from_outside_is_shown_as_it_is() -> None:
    data = samples.written(Dialect.EBMS2).body
    assert inspection.describe_bytes(data, signature_state="valid")["signature"] == "valid"


def test_several_messages_of_one_body_are_listed() -> None:
    together = codec.bundle([samples.written(Dialect.MS_09X), samples.written(Dialect.MS_09X)])
    values = inspection.describe_bytes(http(together, "HTTP/1.1 200 OK"))
    assert [one["message_id"] for one in values["messages"]] == ["m-1001@alpha.example"] * 2


# SOAP Faults


def test_a_fault_is_written_and_read() -> None:
    parcel = soap.write_fault(SoapFault("MustUnderstand", "the block <X> & more\x07"))
    fault = read_fault(parcel.body)
    assert fault is not None
    assert (fault.code, fault.string) == ("MustUnderstand", "the block <X> & more")
    client = read_fault(soap.write_fault(Inconsistent("no", location="//x")).body)
    assert client is not None
    assert client.code == "Client"
    odd = read_fault(soap.write_fault(SoapFault("Odd", "x")).body)
    assert odd is not None
    assert odd.code == "Server"


@pytest.mark.parametrize("envelope", [b"", b"<a/>", b"<a><b></a>"])
def test_what_is_no_fault_is_none(envelope: bytes) -> None:
    assert read_fault(envelope) is None
    assert read_fault(codec.read(samples.written(Dialect.EBMS2)).envelope) is None


# Two handlers side by side


def capture(parcel: Parcel | None, kind: CaptureKind = CaptureKind.HTTP_RESPONSE) -> Capture | None:
    return None if parcel is None else Capture(kind, parcel)


def request(dialect: Dialect = Dialect.EBMS2) -> Capture:
    return Capture(CaptureKind.HTTP_REQUEST, samples.written(dialect))


@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_peer_that_answers_as_we_do_differs_in_nothing(dialect: Dialect) -> None:
    message = codec.read(samples.written(dialect)).message
    answer = answers.acknowledgment_for(message, envelope_for(dialect))
    theirs = codec.write(answer, samples.form(dialect))
    found = inspection.compare(request(dialect), capture(theirs), Form(dialect), now=NOW)
    assert found.differences == ()
    assert found.message_id == "m-1001@alpha.example"
    assert found.ours.message is not None
    assert found.ours.message.kind is MessageKind.ACKNOWLEDGMENT


def test_differences_are_listed_field_by_field() -> None:
    message = codec.read(samples.written(Dialect.EBMS2)).message
    error = answers.error_message_for(
        message, [Inconsistent("x", location="//y")], envelope_for(Dialect.EBMS2)
    )
    theirs = codec.write(error, samples.form(Dialect.EBMS2))
    found = inspection.compare(request(), capture(theirs), Form(), now=NOW)
    assert {one.field for one in found.differences} == {
        "kind",
        "action",
        "acknowledgments",
        "errors",
        "error_locations",
    }
    assert found.differences[0].theirs == "MessageError"
    assert found.differences[0].ours == "Acknowledgment"


def test_silence_faults_and_garbage_are_answers_too() -> None:
    silent = inspection.compare(request(), None, Form(), now=NOW)
    assert [(one.field, one.theirs, one.ours) for one in silent.differences] == [
        ("answer", "nothing", "message")
    ]
    fault = capture(soap.write_fault(SoapFault("Client", "no")))
    assert inspection.compare(request(), fault, Form(), now=NOW).theirs.fault_code == "Client"
    garbage = capture(Parcel("text/html", b"<html>oops</html>"))
    found = inspection.compare(request(), garbage, Form(), now=NOW)
    assert found.theirs.kind is inspection.AnswerKind.UNREADABLE


def test_a_refused_request_is_compared_by_its_error(corpus: Path) -> None:
    broken = open_capture(
        corpus_bytes(corpus, "ebms-core/soap/EbMSMessageInvalidAckRequestedActor.xml")
    )
    found = inspection.compare(broken, None, Form(), now=NOW)
    assert found.ours.message is not None
    assert found.ours.message.error_list is not None
    assert found.ours.message.error_list.errors[0].location == "//Header/AckRequested/@actor"
    lost = Capture(CaptureKind.HTTP_REQUEST, Parcel("text/xml", b"<x"))
    assert inspection.compare(lost, None, Form(), now=NOW).ours.kind is inspection.AnswerKind.FAULT


def test_pings_and_errors_have_their_own_answers(corpus: Path) -> None:
    ping = open_capture(corpus_bytes(corpus, "phinms-phineas/examples/ping.txt"))
    found = inspection.compare(ping, None, Form(), now=NOW)
    assert found.ours.message is not None
    assert found.ours.message.kind is MessageKind.PONG
    status = open_capture(corpus_bytes(corpus, "ebms-core/soap/EbMSMessageStatus.xml"))
    answer = inspection.compare(status, None, Form(), now=NOW).ours.message
    assert answer is not None
    assert answer.kind is MessageKind.STATUS_RESPONSE
    error = open_capture(corpus_bytes(corpus, "nhs-mhs/expected_messages/ebxml_nack.xml"))
    assert inspection.compare(error, None, Form(), now=NOW).differences == ()
