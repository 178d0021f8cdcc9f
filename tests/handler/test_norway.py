"""Norwegian health over mail: a peer that follows a script, and a handler under its profile.

The peer signs, wants a signed acknowledgement by mail, and judges repeats by the Message-ID of the
mail and by the MessageId: a mail that a server repeats is nobody's, a message that is sent again
gets the same acknowledgement again.
"""

from __future__ import annotations

from pathlib import Path

import aiosmtplib
import pytest

from oncewire.agreement.agreement import Agreement
from oncewire.agreement.agreements import Agreements
from oncewire.agreement.check.checks import check
from oncewire.agreement.toml.reader import read_toml
from oncewire.handler.actions import Post
from oncewire.handler.engine import Engine
from oncewire.handler.handler import Handler
from oncewire.handler.keys import Keys
from oncewire.handler.node import Node
from oncewire.handler.sealing.seal import whole_parcel
from oncewire.handler.world import RealWorld
from oncewire.journal.check import check_journal
from oncewire.protocol.kinds import Kind
from oncewire.store.memory.store import MemoryStore
from oncewire.store.sqlite.store import SqliteStore
from oncewire.transport.smtp.listener import ListenerSettings
from oncewire.transport.smtp.mail import write_mail
from oncewire.transport.smtp.relay import MailTls, RelaySettings
from oncewire.transport.smtp.transport import SmtpTransport
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.serving import journal
from tests.handler.test_other_transports import document
from tests.handler.test_signed import pem
from tests.ports import free_port
from tests.transport.contract_checks import until
from tests.transport.exchange import Receiver, run
from tests.wire.security.keys import alpha, mallory

PEOPLE = {"alpha": alpha("rsa"), "beta": mallory("rsa")}


def agreed(own: str, partner: str) -> Agreement:
    certificate = pem(PEOPLE[partner].certificate).replace("\n", "\\n")
    sides = "".join(
        f'[{side}]\nparty_id = "urn:test:{name}"\nsmtp = "mailto:{name}@{name}.test"\n'
        f'http = "https://{name}.test/msh"\n'
        for side, name in (("own", own), ("partner", partner))
    )
    # What is asked at once goes over HTTP, under the same agreement.
    asked = (
        '[[actions]]\ndirection = "send"\nservice = "urn:test:orders"\naction = "Ask"\n'
        'delivery.transports = ["http"]\nsync.mode = "signalsAndResponse"\n'
        'ack.request = "never"\nack.signature = "never"\nduplicate.elimination = "never"\n'
        "delivery.reliable = false\n"
    )
    return read_toml(
        f'cpa_id = "alpha-beta"\nprofile = "norway-smtp"\n{sides}'
        f'[security]\npartner_certificates = ["{certificate}"]\n{asked}'
    )


def keys(name: str) -> Keys:
    return Keys(PEOPLE[name].certificate, PEOPLE[name].key)


def letter() -> Parcel:
    """A message of the peer, signed."""
    node = Node(
        "alpha", MemoryStore("alpha"), Agreements([agreed("alpha", "beta")]), RealWorld(),
        keys=keys("alpha"),
    )  # fmt: skip
    engine = Engine(node)
    engine.start()
    engine.submit(document(1))
    (post,) = [action for action in engine.commit() if isinstance(action, Post)]
    assert post.transport == "smtp"
    return whole_parcel(node, post.parcel)


def test_the_profile_has_both_ways_in_one_agreement() -> None:
    agreement = agreed("alpha", "beta")
    (ask,) = agreement.actions
    assert (agreement.sending.terms.transports, ask.terms.transports) == (("smtp",), ("http",))
    assert ask.terms.synchronous
    assert not agreement.sending.terms.synchronous
    assert not [one for one in check(agreement) if one.severity.value == "error"]


@pytest.mark.long
@pytest.mark.requirement("TRN-3", "DUP-9")
def test_a_mail_that_is_repeated_and_a_message_that_is_sent_again(tmp_path: Path) -> None:
    async def work() -> None:
        answers = Receiver()
        at = free_port()
        peer = SmtpTransport(listener=ListenerSettings("alpha@alpha.test"))
        await peer.start(answers)
        relay = RelaySettings("beta@beta.test", "127.0.0.1", peer.port, MailTls.NONE)
        ours = SmtpTransport(relay, ListenerSettings("beta@beta.test", port=at))
        store = SqliteStore.open(tmp_path / "beta.db", node="beta")
        agreements = Agreements([agreed("beta", "alpha")])
        node = Node("beta", store, agreements, RealWorld(), keys=keys("beta"))
        parcel = letter()

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
            # A server on the way repeats the mail: nobody hears of it.
            await post("1@alpha.test")
            # The peer sends the message again: it gets the same acknowledgement.
            await post("2@alpha.test")
            await until(lambda: len(answers.taken) == 2)
            first, second = answers.taken
            assert first.body == second.body
            ack = codec.read(Parcel(first.content_type, first.body, tuple(first.headers.items())))
            assert ack.signed
            assert ack.message.acknowledgments[0].references
            kinds = [row.kind for row in journal(beta)]
            assert (kinds.count(Kind.RECEIVED), kinds.count(Kind.DUPLICATE)) == (1, 1)
            assert len(await beta.take(10)) == 1
            assert not check_journal(journal(beta), healed=False).violations
        await peer.stop()

    run(work(), 60)
