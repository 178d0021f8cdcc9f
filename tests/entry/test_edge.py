"""The edge of a handler as its defaults make it: a process, real TLS, and whoever connects."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.entry.party.partners import with_values
from oncewire.message.envelope import Acknowledgment, Header, Message, MessageKind
from oncewire.message.form import Dialect, Form
from oncewire.message.ids import Party, Service
from oncewire.wire import codec
from oncewire.wire.ebms2.blocks import SIGNAL_SERVICE
from tests.entry.driven import Driven, ask
from tests.entry.terminal import run, run_json
from tests.ports import free_port
from tests.waiting import PATIENCE

pytestmark = pytest.mark.process


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driven]:
    """The handler of acme, which serves one request of a partner at a time. Its partners are
    globex and initech; neither of them runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONCEWIRE_CONFIG", raising=False)
    for name in ("acme", "globex", "initech"):
        run("init", name, "--port", str(free_port()))
    for name in ("globex", "initech"):
        run("partner", "add", name, "--both", "-c", "acme")
    file = tmp_path / "acme" / "oncewire.toml"
    file.write_text(with_values(file.read_text(), {"budget.partners": "1"}))
    driven = Driven(tmp_path / "acme")
    driven.ready()
    yield driven
    driven.close()


def connect(acme: Driven, who: str | None) -> ssl.SSLSocket:
    """A connection with the certificate of a party, or with none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(acme.folder / "keys" / "acme.crt")
    if who is not None:
        keys = acme.folder.parent / who / "keys"
        context.load_cert_chain(keys / f"{who}.crt", keys / f"{who}.key")
    port = int(
        re.findall(r"^port = (\d+)$", (acme.folder / "oncewire.toml").read_text(), re.MULTILINE)[0]
    )
    plain = socket.create_connection(("127.0.0.1", int(port)), timeout=30)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def say(connection: ssl.SSLSocket, body: bytes) -> bytes:
    """POST something; the first line of what comes back, nothing where the peer is gone."""
    head = 'POST /msh HTTP/1.1\r\nHost: acme\r\nContent-Type: text/xml\r\nSOAPAction: "ebXML"\r\n'
    try:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection.recv(65536).partition(b"\r\n")[0]
    except (ssl.SSLError, ConnectionError):
        return b""


def acknowledgement(message_id: str) -> bytes:
    """What anybody can write in globex's name."""
    globex, at = Party.of("urn:oncewire:party:globex"), 1_767_225_600_000_000
    header = Header(
        from_party=globex,
        to_party=Party.of("urn:oncewire:party:acme"),
        cpa_id="acme-globex",
        conversation_id="talk",
        service=Service(SIGNAL_SERVICE),
        action="Acknowledgment",
        message_id="ack@globex",
        timestamp=at,
        ref_to_message_id=message_id,
    )
    element = Acknowledgment(at, message_id, globex)
    ack = Message(Dialect.EBMS2, MessageKind.ACKNOWLEDGMENT, header, acknowledgments=(element,))
    return codec.write(ack, Form()).body


def test_an_acknowledgement_over_another_partners_connection_is_shown_and_settles_nothing(
    acme: Driven, tmp_path: Path
) -> None:
    (tmp_path / "order.xml").write_text("<order/>")
    sent = run_json("send", "order.xml", "--to", "globex", "-c", "acme")
    message_id = sent["messages"][0]["message_id"]
    word = acknowledgement(message_id)
    with connect(acme, "initech") as connection:
        assert say(connection, word) == b"HTTP/1.1 204 No Content"
    acme.wait_for("a signal was ignored")
    (line,) = [one for one in acme.lines("warning") if one["event"] == "a signal was ignored"]
    assert line["message_id"] == message_id
    assert "certificate" in line["problem"]
    told = ask(acme.folder, "why", message_id)
    assert "a signal was ignored" in str(told)
    assert "delivered" not in str(told.get("state"))
    # Who shows no certificate is not even heard.
    with connect(acme, None) as connection:
        assert say(connection, word) == b""


def test_a_revoked_partner_keeps_no_connection_and_makes_none(acme: Driven) -> None:
    with connect(acme, "initech") as idle, connect(acme, "globex") as other:
        assert say(idle, b"<x/>") == say(other, b"<x/>") == b"HTTP/1.1 500 Internal Server Error"
        run("partner", "revoke", "initech", "-c", "acme")
        acme.wait_for("certificates were read anew")
        assert say(idle, b"<x/>") == b""
    with connect(acme, "initech") as again:
        assert say(again, b"<x/>") == b""
    with connect(acme, "globex") as other:
        assert say(other, b"<x/>") == b"HTTP/1.1 500 Internal Server Error"


def test_a_partner_that_is_sent_away_is_an_incident_and_a_line_of_the_log(acme: Driven) -> None:
    with connect(acme, "initech") as greedy, connect(acme, "globex") as honest:
        greedy.sendall(b"POST /msh HTTP/1.1\r\nHost: acme\r\nContent-Length: 9\r\n\r\n")
        # Whichever of the two is let in: while it says no more, the other one waits in vain.
        honest.sendall(b"POST /msh HTTP/1.1\r\nHost: acme\r\nContent-Length: 9\r\n\r\n")
        acme.wait_for("partners are sent away for a while")
    incidents: list[str] = []
    while not incidents:
        incidents = [str(one) for one in ask(acme.folder, "incidents")["incidents"]]
    (incident,) = incidents
    assert "partners are sent away" in incident
    assert "handler budget" in incident
    run("resume", "--channel", "handler budget", "-c", "acme")
    assert ask(acme.folder, "incidents")["incidents"] == []


def test_what_else_is_wrong_with_the_files_keeps_nobody_from_being_revoked(acme: Driven) -> None:
    """A file that cannot be read changes nothing, and that holds for that file alone."""
    (acme.folder / "keys" / "partners" / "globex.crt").write_text("")
    acme.wait_for("not taken over")
    run("partner", "revoke", "initech", "-c", "acme")
    word = acknowledgement("order@acme").replace(b"globex", b"initech")
    deadline = time.monotonic() + PATIENCE
    # It is counted as what it is, in a table that is written now and then.
    while "client certificate is not the agreed one" not in str(ask(acme.folder, "status")):
        with connect(acme, "initech") as connection:
            say(connection, word)
        assert time.monotonic() < deadline
