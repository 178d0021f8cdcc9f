"""Scenes: short plays on a stage, each of them a kind of trouble or of wish that a key speaks of.

A scene gets a stage whose handlers run under the agreement in question, and plays. It judges
nothing; what its handlers did is the stage's record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from oncewire.errors import SoapFault
from oncewire.handler.actions import Source, Submission
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.ids import Service
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND
from oncewire.message.payload import Payload
from oncewire.store.search import Search
from oncewire.wire import soap
from oncewire.wire.parcel import Parcel
from tests.handler.stage import Stage
from tests.wire.security.keys import Identity, issue


def response(number: int = 1) -> Submission:
    """What beta's application answers to an order."""
    return Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "Answer",
        (Payload.of(f"response-{number}", "text/plain", b"response"),),
        conversation_id="talk",
        message_id=f"response-{number}@beta",
        ref_to_message_id=f"order-{number}@alpha",
    )


def words(parcel: Parcel, old: bytes, new: bytes) -> Parcel:
    """The parcel with other words in it."""
    assert old in parcel.body, parcel.body
    headers = tuple(header for header in parcel.headers if header[0] != "Content-Digest")
    return replace(parcel, body=parcel.body.replace(old, new), headers=headers)


@cache
def identity(name: str) -> Identity:
    """Who somebody is. An authority has issued gamma's certificate, and its next one too."""
    if name.startswith("gamma"):
        return issue("gamma", "rsa", identity("authority"))
    return issue(name, "rsa", ca=name == "authority")


# --- nothing goes wrong ---


def exchange(stage: Stage) -> None:
    """An order goes and comes, and then time passes until it is forgotten."""
    stage.send()
    stage.take()
    stage.pass_time(MINUTE, DAY, DAY)
    stage.pass_time(30 * DAY)


def burst(stage: Stage) -> None:
    """Many orders, and nobody answers any of them but the first."""
    stage.send(1)
    stage.lose_request = lambda post: True
    for number in range(2, 7):
        stage.send(number)
    stage.pass_time(MINUTE)


def conversation(stage: Stage) -> None:
    """beta's application answers the order, after a while."""
    stage.responses = {"order-1@alpha": [response()]}
    stage.send()
    stage.pass_time(10 * SECOND)
    stage.take()
    stage.take("alpha")
    stage.pass_time(MINUTE, MINUTE)


def question(stage: Stage) -> None:
    """An order whose response is waited for on its connection."""
    stage.engines["beta"].context.application_called = True
    stage.responses = {"order-1@alpha": [response()]}
    stage.send()
    stage.take("alpha")
    stage.pass_time(MINUTE, MINUTE)


def question_unheard(stage: Stage) -> None:
    """The same, and every connection breaks before the response is there."""
    stage.lose_answer = lambda count: True
    question(stage)
    stage.pass_time(MINUTE, MINUTE, HOUR)


def beside(stage: Stage) -> None:
    """Messages that ask for nothing, each carried twice."""
    stage.send(best_effort=True)
    stage.arrive("beta", stage.sent())
    stage.take()


# --- something is lost ---


def silence(stage: Stage) -> None:
    """beta has the order, and every answer is lost until alpha gives up."""
    stage.lose_answer = lambda count: True
    stage.send()
    stage.pass_time(*[20 * SECOND] * 12)
    stage.pass_time(HOUR, DAY, DAY, DAY)
    stage.send(2)


def unreachable(stage: Stage) -> None:
    """No connection can be made; the second way is tried where there is one."""
    stage.lose_request = lambda post: True
    stage.send()
    stage.pass_time(*[MINUTE] * 12)


def copies(stage: Stage) -> None:
    """beta has answered an order, and further copies of it come."""
    stage.responses = {"order-1@alpha": [response()]}
    stage.send()
    stage.take()
    stage.pass_time(MINUTE)
    stage.arrive("beta", stage.sent())
    stage.take()


def early_copies(stage: Stage) -> None:
    """A copy comes while nothing is stored that could answer it."""
    stage.engines["beta"].context.application_called = True
    stage.lose_request = lambda post: True
    stage.send()
    parcel = stage.sent()
    stage.deliver("beta", parcel)
    stage.deliver("beta", parcel)


def gap(stage: Stage) -> None:
    """The second of three orders is late."""
    stage.lose_request = lambda post: post.message_id == "order-2@alpha" and post.attempt == 1
    for number in (1, 2, 3):
        stage.send(number)
    stage.take()
    stage.pass_time(2 * MINUTE)
    stage.take()


def late(stage: Stage) -> None:
    """An order arrives forty seconds after its lifetime."""
    stage.lose_request = lambda post: True
    stage.send(time_to_live=20 * SECOND)
    parcel = stage.sent()
    stage.pass_time(MINUTE)
    stage.arrive("beta", parcel)
    stage.take()


def faults(stage: Stage) -> None:
    """beta's web server answers every order with a SOAP Fault."""
    stage.lose_request = lambda post: True
    stage.send()
    fault = soap.write_fault(SoapFault("Client", "not today"))
    ended = Transmission("order-1@alpha", 1, sent=True)
    stage.engines["alpha"].transmission_over(ended, fault)
    stage.settle("alpha")
    stage.pass_time(MINUTE, MINUTE)


# --- something is not as agreed ---


def looked_for(stage: Stage) -> None:
    """An order is sent, and both sides look for it by its number."""
    order = b'<orders><order id="4711"/></orders>'
    stage.send(payloads=(Payload.of("order", "application/xml", order),))
    for name, engine in stage.engines.items():
        with engine.context.store.reader() as reader:
            sent = reader.find_sent(Search(value="4711"), 10).messages
            arrived = reader.find_received(Search(value="4711"), 10).messages
        stage.note(name, "finds", len(sent), len(arrived))


def large(stage: Stage) -> None:
    """A document of 2,000 bytes, and one that another handler sends."""
    document = Payload.of("order-1", "text/plain", b"x" * 2_000)
    stage.send(1, payloads=(document,))
    stage.send(2)
    stage.arrive("beta", words(stage.sent(2), b"order 2", b"y" * 2_000))


def swelling(stage: Stage) -> None:
    """A document that is much smaller once it is compressed."""
    stage.send(
        1,
        payloads=(
            Payload.of(
                "order-1", "text/plain", b"".join(b"line %d of an order\n" % n for n in range(200))
            ),
        ),
    )


def place(stage: Stage) -> None:
    """An order by the names that the sample CPA has."""
    stage.send(service=Service("urn:ex:orders"), action="Place")
    stage.take()


def strange_action(stage: Stage) -> None:
    """The SOAPAction is another one."""
    stage.change = lambda parcel: replace(parcel, headers=(("SOAPAction", '"other"'),))
    stage.send()
    stage.take()


def broken_header(stage: Stage) -> None:
    """A header that no schema knows."""
    stage.change = lambda parcel: words(parcel, b"<eb:Action>", b"<eb:Odd/><eb:Action>")
    stage.send()
    stage.take()


def odd_base64(stage: Stage) -> None:
    """Quotation marks around the base64 of the order, as Spine writes it."""
    plain = b"\r\n\r\norder 1"
    odd = b'\r\nContent-Transfer-Encoding: base64\r\n\r\n"b3JkZXIgMQ=="'
    stage.change = lambda parcel: words(parcel, plain, odd) if plain in parcel.body else parcel
    stage.send()
    stage.take()


def strange_cpa(stage: Stage) -> None:
    """Another CPAId than the agreed one."""
    stage.change = lambda parcel: (
        words(parcel, b"alpha-beta", b"alpha-zeta") if b"order 1" in parcel.body else parcel
    )
    stage.send()
    stage.take()


def strange_reference(stage: Stage) -> None:
    """An order that refers to something nobody has heard of."""
    stage.send(ref_to_message_id="nothing@nowhere")
    stage.take()


def other_service(stage: Stage) -> None:
    """An order of a service of its own."""
    stage.send(1, service=Service("urn:test:bills"), action="Pay")
    stage.send(2, service=Service("urn:test:bills", "urn:test:kind"), action="Pay")
    stage.send(3, service=Service("urn:test:orders"), action="New")
    stage.take()


def stripped(old: bytes, new: bytes = b"") -> Callable[[Stage], None]:
    """A scene in which alpha's header lacks some words, or has others."""

    def play(stage: Stage) -> None:
        stage.lose_request = lambda post: True
        stage.send()
        stage.arrive("beta", words(stage.sent(), old, new))
        stage.take()

    return play


def with_certificate(stage: Stage) -> None:
    """The connection shows alpha's certificate."""
    der = identity("alpha").certificate.public_bytes(Encoding.DER)
    stage.source = Source("http", can_answer=True, certificate=der)
    stage.send()
    stage.take()
