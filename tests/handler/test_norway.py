"""Norwegian health over mail: a peer that follows a script, and a handler under its profile.

The peer signs, wants a signed acknowledgement by mail, and judges repeats by the Message-ID of the
mail and by the MessageId: a mail that a server repeats is nobody's, a message that is sent again
gets the same acknowledgement again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import aiohttp
import aiosmtplib
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.check.dangers import check
from oncewire.agreement.toml import read_toml
from oncewire.handler.actions import Notice, Post, Submission
from oncewire.handler.context import HandlerContext, Keys
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.handler.encryption import whole_parcel
from oncewire.handler.runtime.engine import Engine
from oncewire.handler.runtime.handler import Handler
from oncewire.handler.world import RealWorld
from oncewire.journal.check import check_journal
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.protocol.notes import Kind
from oncewire.store.memory.store import MemoryStore
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.http.server import HttpServerSettings
from oncewire.transport.http.transport import HttpTransport
from oncewire.transport.smtp.listener import ListenerSettings
from oncewire.transport.smtp.relay import MailTls, RelaySettings, write_mail
from oncewire.transport.smtp.transport import SmtpTransport
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from oncewire.wire.security.smime import open_envelope
from tests.handler.running import journal
from tests.handler.test_other_transports import document
from tests.handler.test_signed import pem
from tests.ports import free_port
from tests.transport.exchange import Receiver
from tests.waiting import until
from tests.wire.security.keys import alpha, mallory

AT_ONCE = """delivery.transports = ["http"]
sync.mode = "signalsAndResponse"
ack.request = "never"
ack.signature = "never"
duplicate.elimination = "never"
delivery.reliable = false
"""
PEOPLE = {"alpha": alpha("rsa"), "beta": mallory("rsa")}


LETTER = document(1)


def agreed(own: str, partner: str, at: dict[str, str] | None = None) -> Agreement:
    certificate = pem(PEOPLE[partner].certificate).replace("\n", "\\n")
    sides = "".join(
        f'[{side}]\nparty_id = "urn:test:{name}"\nsmtp = "mailto:{name}@{name}.test"\n'
        f'http = "{(at or {}).get(name, f"https://{name}.test/msh")}"\n'
        for side, name in (("own", own), ("partner", partner))
    )
    # What is asked at once goes over HTTP, under the same agreement.
    asked = "".join(
        f'[[actions]]\ndirection = "{direction}"\nservice = "urn:test:orders"\n'
        f'action = "{action}"\n{AT_ONCE}'
        for direction in ("send", "receive")
        for action in ("Ask", "Told")
    )
    return read_toml(
        f'cpa_id = "alpha-beta"\nprofile = "norway-smtp"\n{sides}'
        f'[security]\nencrypt = true\npartner_certificates = ["{certificate}"]\n'
        f'partner_encryption_certificates = ["{certificate}"]\n{asked}'
    )


def keys(name: str) -> Keys:
    return Keys(PEOPLE[name].certificate, PEOPLE[name].key)


def letter(document: Submission = LETTER, over: str = "smtp") -> Parcel:
    """A message of the peer, signed, its document in an envelope for us."""
    node = HandlerContext(
        "alpha", MemoryStore("alpha"), Agreements([agreed("alpha", "beta")]), RealWorld(),
        keys=keys("alpha"),
    )  # fmt: skip
    engine = Engine(node)
    engine.start()
    engine.submit(document)
    (post,) = [action for action in engine.commit() if isinstance(action, Post)]
    assert post.transport == over
    return whole_parcel(node, post.parcel)


def test_the_profile_has_both_ways_in_one_agreement() -> None:
    agreement = agreed("alpha", "beta")
    ask = agreement.actions[0]
    assert (agreement.sending.terms.transports, ask.terms.transports) == (("smtp",), ("http",))
    assert ask.terms.synchronous
    assert not agreement.sending.terms.synchronous
    assert not [one for one in check(agreement) if one.severity.value == "error"]


@pytest.mark.long
@pytest.mark.requirement("TRN-3", "DUP-9")
async def test_a_mail_that_is_repeated_and_a_message_that_is_sent_again(tmp_path: Path) -> None:
    answers = Receiver()
    at = free_port()
    peer = SmtpTransport(listener=ListenerSettings("alpha@alpha.test"))
    await peer.start(answers)
    relay = RelaySettings("beta@beta.test", "127.0.0.1", peer.port, MailTls.NONE)
    ours = SmtpTransport(relay, ListenerSettings("beta@beta.test", port=at))
    store = SqliteStore(tmp_path / "beta.db", node="beta")
    agreements = Agreements([agreed("beta", "alpha")])
    node = HandlerContext("beta", store, agreements, RealWorld(), keys=keys("beta"))
    parcel = letter()
    assert b"application/pkcs7-mime" in parcel.body

    async def post(mail_id: str) -> None:
        mail = write_mail(
            parcel.content_type, parcel.headers, parcel.body,
            sender="alpha@alpha.test", recipient="beta@beta.test", message_id=mail_id,
        )  # fmt: skip
        await aiosmtplib.send(
            mail, sender="alpha@alpha.test", recipients=["beta@beta.test"],
            hostname="127.0.0.1", port=at, start_tls=False,
        )  # fmt: skip

    async with Handler(node, {"smtp": ours}) as beta:
        await post("1@alpha.test")
        await until(lambda: len(answers.taken) == 1)
        # A server on the way repeats the mail, or the peer sends the message again: the message
        # is known by its MessageId, and each copy gets the same acknowledgement.
        await post("1@alpha.test")
        await post("2@alpha.test")
        await until(lambda: len(answers.taken) == 3)
        first, *copies = answers.taken
        assert [copy.body for copy in copies] == [first.body] * 2
        ack = codec.read(Parcel(first.content_type, first.body, tuple(first.headers.items())))
        assert ack.signed
        assert ack.message.acknowledgments[0].references
        kinds = [row.kind for row in journal(beta)]
        assert (kinds.count(Kind.RECEIVED), kinds.count(Kind.DUPLICATE)) == (1, 2)
        (taken,) = await beta.take(10)
        assert taken.payloads[0] == LETTER.payloads[0]
        assert not check_journal(journal(beta), healed=False).violations
    await peer.stop()


class Desk:
    """An application that answers what it is asked."""

    batch, hears = 4, True

    def __init__(self) -> None:
        self.asked: list[GivenMessage] = []

    async def deliver(self, taken: GivenMessage) -> Sequence[Submission]:
        self.asked.append(taken)
        told = Payload.of("told", "text/xml", b"<told/>")
        return (
            Submission(
                "alpha-beta",
                Service("urn:test:orders"),
                "Told",
                (told,),
                conversation_id=taken.header.conversation_id,
                ref_to_message_id=taken.message_id,
            ),
        )

    async def notify(self, notice: Notice) -> None:
        raise AssertionError(notice)


@pytest.mark.long
@pytest.mark.requirement("SYNC-1")
async def test_what_is_asked_over_http_is_answered_in_the_response_of_the_post(
    tmp_path: Path,
) -> None:
    """Under the agreement whose letters go by mail: signed and in envelopes both, and nobody
    acknowledges anything."""
    ask = replace(LETTER, action="Ask")

    port = free_port()
    at = {"beta": f"http://127.0.0.1:{port}/msh"}
    store = SqliteStore(tmp_path / "beta.db", node="beta")
    agreements = Agreements([agreed("beta", "alpha", at)])
    node = HandlerContext("beta", store, agreements, RealWorld(), keys=keys("beta"))
    http = HttpTransport(HttpServerSettings("127.0.0.1", port, "/msh"))
    desk = Desk()
    parcel = letter(ask, "http")
    headers = {"Content-Type": parcel.content_type, **dict(parcel.headers)}
    async with Handler(node, {"http": http}, application=desk) as beta:
        async with (
            aiohttp.ClientSession() as session,
            session.post(at["beta"], data=parcel.body, headers=headers) as response,
        ):
            assert response.status == 200
            body, kind = await response.read(), response.headers["Content-Type"]
        reply = codec.read(Parcel(kind, body))
        assert reply.signed
        assert reply.message.header is not None
        assert reply.message.header.action == "Told"
        assert not reply.message.acknowledgments
        (told,) = reply.message.payloads
        assert told.data is not None
        key = PEOPLE["alpha"].key
        assert isinstance(key, rsa.RSAPrivateKey)
        meant = open_envelope(told.data, PEOPLE["alpha"].certificate, key)
        assert meant.content == b"<told/>"
        assert [taken.payloads[0] for taken in desk.asked] == [ask.payloads[0]]
        assert not check_journal(journal(beta), healed=False).violations
