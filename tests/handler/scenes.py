"""Scenes: short plays on a stage, each of them a kind of trouble or of wish that a key speaks of.

A scene gets a stage whose handlers run under the agreement in question, and plays. It judges
nothing; what its handlers did is the stage's record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import OncewireError, SoapFault
from oncewire.handler.actions import Source
from oncewire.handler.context import Keys
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from oncewire.message.instant import DAY, HOUR, MINUTE, SECOND
from oncewire.store.search import Search
from oncewire.wire import soap
from oncewire.wire.parcel import Parcel
from tests.handler.network import START, Network, response
from tests.wire.security.keys import Identity, issue

Said = dict[str, Any]
"""What an agreement says: dotted keys, and values as TOML has them."""

# Made anew whenever a payload is encrypted, and with it what is computed from its bytes.
_CHANCE = re.compile(r"(CipherValue>|sha-256=:|=_)[A-Za-z0-9+/=\s]{16,}")


def toml(value: Any) -> str:
    """A TOML literal; tables are written inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def paper(own: str, partner: str, *layers: Said) -> str:
    """The agreement of one party with another; a later layer says more, None takes back."""
    said: Said = {"cpa_id": "alpha-beta"}
    for side, name in (("own", own), ("partner", partner)):
        uri = f"http://{name}/msh"
        said |= {f"{side}.party_id": f"urn:test:{name}", f"{side}.uri": uri, f"{side}.http": uri}
    for layer in layers:
        said |= layer
    tables: dict[str, Any] = {}
    for key, value in said.items():
        section, _, name = key.rpartition(".")
        if value is not None:
            (tables.setdefault(section, {}) if section else tables)[name] = value
    return "\n".join(f"{name} = {toml(value)}" for name, value in tables.items())


def stage(
    papers: dict[str, list[str]],
    keys: dict[str, Keys] | None = None,
    load: Callable[[str], bytes] | None = None,
) -> Network:
    """The handlers of these agreements; beta receives, so it is the last one."""
    found = {
        name: Agreements([read_toml(text, load=load) for text in papers[name]])
        for name in sorted(papers, key="beta".__eq__)
    }
    return Network(found, keys=keys or {})


def send(stage: Network, number: int = 1, **more: Any) -> None:
    """An application hands in an order; what it is told, if it is refused, is noted."""
    try:
        stage.send(number, **more)
    except OncewireError as refused:
        stage.note("alpha", "refuses to send", type(refused).__name__)
        stage.settle("alpha")


def fingerprint(stage: Network) -> list[str]:
    """All that was seen from outside, and what the stores hold at the end.

    The agreement itself is left out (the rows that quote the terms, and their ids), so that two
    fingerprints differ only where the handlers did something else.
    """
    found = [" | ".join(_word(word) for word in words) for words in stage.record]
    for name, engine in stage.engines.items():
        with engine.context.store.reader() as reader:
            found.append(f"{name} keeps {sorted(reader.counts().items())}")
            found += [f"{name} counts {one.code}" for one in reader.refusals()]
        found.append(f"{name} wakes at {engine.context.store.next_wake()}")
        found += [
            f"{name} notes {row.at - START} {row.kind} {row.message_id} {row.attempt} "
            f"{row.sequence_number} {row.transport} {row.peer} {row.detail}"
            for row in stage.rows(at=name)
            if row.kind != "terms"
        ]
    return [_CHANCE.sub(r"\1...", line) for line in found]


def _word(word: object) -> str:
    return word.decode("latin-1") if isinstance(word, bytes) else str(word)


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


def exchange(stage: Network) -> None:
    """An order goes and comes, and then time passes until it is forgotten."""
    send(stage)
    stage.given()
    stage.pass_time(MINUTE, DAY, DAY)
    stage.pass_time(30 * DAY)


def burst(stage: Network) -> None:
    """Many orders, and nobody answers any of them but the first."""
    send(stage, 1)
    stage.lose_request = lambda post: True
    for number in range(2, 7):
        send(stage, number)
    stage.pass_time(MINUTE)


def conversation(stage: Network) -> None:
    """beta's application answers the order, after a while."""
    stage.responses = {"order-1@alpha": [response()]}
    send(stage)
    stage.pass_time(10 * SECOND)
    stage.given()
    stage.given("alpha")
    stage.pass_time(MINUTE, MINUTE)


def question(stage: Network) -> None:
    """An order whose response is waited for on its connection."""
    stage.engines["beta"].context.application_called = True
    stage.responses = {"order-1@alpha": [response()]}
    send(stage)
    stage.given("alpha")
    stage.pass_time(MINUTE, MINUTE)


def question_unheard(stage: Network) -> None:
    """The same, and every connection breaks before the response is there."""
    stage.lose_answer = lambda count: True
    question(stage)
    stage.pass_time(MINUTE, MINUTE, HOUR)


def beside(stage: Network) -> None:
    """Messages that ask for nothing, each carried twice."""
    send(stage, best_effort=True)
    stage.connect("beta", stage.sent())
    stage.given()


# --- something is lost ---


def silence(stage: Network) -> None:
    """beta has the order, and every answer is lost until alpha gives up."""
    stage.lose_answer = lambda count: True
    send(stage)
    stage.pass_time(*[20 * SECOND] * 12)
    stage.pass_time(HOUR, DAY, DAY, DAY)
    send(stage, 2)


def unreachable(stage: Network) -> None:
    """No connection can be made; the second way is tried where there is one."""
    stage.lose_request = lambda post: True
    send(stage)
    stage.pass_time(*[MINUTE] * 12)


def copies(stage: Network) -> None:
    """beta has answered an order, and further copies of it come."""
    stage.responses = {"order-1@alpha": [response()]}
    send(stage)
    stage.given()
    stage.pass_time(MINUTE)
    stage.connect("beta", stage.sent())
    stage.given()


def early_copies(stage: Network) -> None:
    """A copy comes while nothing is stored that could answer it."""
    stage.engines["beta"].context.application_called = True
    stage.lose_request = lambda post: True
    send(stage)
    parcel = stage.sent()
    stage.deliver("beta", parcel)
    stage.deliver("beta", parcel)


def gap(stage: Network) -> None:
    """The second of three orders is late."""
    stage.lose_request = lambda post: post.message_id == "order-2@alpha" and post.attempt == 1
    for number in (1, 2, 3):
        send(stage, number)
    stage.given()
    stage.pass_time(2 * MINUTE)
    stage.given()


def late(stage: Network) -> None:
    """An order arrives forty seconds after its lifetime."""
    stage.lose_request = lambda post: True
    send(stage, time_to_live=20 * SECOND)
    parcel = stage.sent()
    stage.pass_time(MINUTE)
    stage.connect("beta", parcel)
    stage.given()


def faults(stage: Network) -> None:
    """beta's web server answers every order with a SOAP Fault."""
    stage.lose_request = lambda post: True
    send(stage)
    fault = soap.write_fault(SoapFault("Client", "not today"))
    ended = Transmission("order-1@alpha", 1, sent=True)
    stage.engines["alpha"].transmission_over(ended, fault)
    stage.settle("alpha")
    stage.pass_time(MINUTE, MINUTE)


# --- something is not as agreed ---


def looked_for(stage: Network) -> None:
    """An order is sent, and both sides look for it by its number."""
    order = b'<orders><order id="4711"/></orders>'
    send(stage, payloads=(Payload.of("order", "application/xml", order),))
    for name, engine in stage.engines.items():
        with engine.context.store.reader() as reader:
            sent = reader.find_sent(Search(value="4711"), 10).messages
            arrived = reader.find_received(Search(value="4711"), 10).messages
        stage.note(name, "finds", len(sent), len(arrived))


def large(stage: Network) -> None:
    """A document of 2,000 bytes, and one that another handler sends."""
    document = Payload.of("order-1", "text/plain", b"x" * 2_000)
    send(stage, 1, payloads=(document,))
    send(stage, 2)
    stage.connect("beta", words(stage.sent(2), b"order 2", b"y" * 2_000))


def swelling(stage: Network) -> None:
    """A document that is much smaller once it is compressed."""
    send(
        stage,
        1,
        payloads=(
            Payload.of(
                "order-1", "text/plain", b"".join(b"line %d of an order\n" % n for n in range(200))
            ),
        ),
    )


def place(stage: Network) -> None:
    """An order by the names that the sample CPA has."""
    send(stage, service=Service("urn:ex:orders"), action="Place")
    stage.given()


def strange_action(stage: Network) -> None:
    """The SOAPAction is another one."""
    stage.change = lambda parcel: replace(parcel, headers=(("SOAPAction", '"other"'),))
    send(stage)
    stage.given()


def broken_header(stage: Network) -> None:
    """A header that no schema knows."""
    stage.change = lambda parcel: words(parcel, b"<eb:Action>", b"<eb:Odd/><eb:Action>")
    send(stage)
    stage.given()


def odd_base64(stage: Network) -> None:
    """Quotation marks around the base64 of the order, as Spine writes it."""
    plain = b"\r\n\r\norder 1"
    odd = b'\r\nContent-Transfer-Encoding: base64\r\n\r\n"b3JkZXIgMQ=="'
    stage.change = lambda parcel: words(parcel, plain, odd) if plain in parcel.body else parcel
    send(stage)
    stage.given()


def strange_cpa(stage: Network) -> None:
    """Another CPAId than the agreed one."""
    stage.change = lambda parcel: (
        words(parcel, b"alpha-beta", b"alpha-zeta") if b"order 1" in parcel.body else parcel
    )
    send(stage)
    stage.given()


def strange_reference(stage: Network) -> None:
    """An order that refers to something nobody has heard of."""
    send(stage, ref_to_message_id="nothing@nowhere")
    stage.given()


def other_service(stage: Network) -> None:
    """An order of a service of its own."""
    send(stage, 1, service=Service("urn:test:bills"), action="Pay")
    send(stage, 2, service=Service("urn:test:bills", "urn:test:kind"), action="Pay")
    send(stage, 3, service=Service("urn:test:orders"), action="New")
    stage.given()


def stripped(old: bytes, new: bytes = b"") -> Callable[[Network], None]:
    """A scene in which alpha's header lacks some words, or has others."""

    def play(stage: Network) -> None:
        stage.lose_request = lambda post: True
        send(stage)
        stage.connect("beta", words(stage.sent(), old, new))
        stage.given()

    return play


def with_certificate(stage: Network) -> None:
    """The connection shows alpha's certificate."""
    der = identity("alpha").certificate.public_bytes(Encoding.DER)
    stage.source = Source("http", can_answer=True, certificate=der)
    send(stage)
    stage.given()
