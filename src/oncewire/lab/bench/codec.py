"""Codec: what reading, writing, signing and verifying a message cost.

Reading and writing stand beside a bare lxml parse of the same bytes.

The message is an envelope of about 2.5 KB and a payload of 2 KB. Reading includes the MIME frame,
every limit, every field, every rule, the payload's digest and the schema. A cycle builds a message,
reads it, builds its acknowledgement and reads that; its limit is to parse the two envelopes.
"Learned" is by templates of an earlier message.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lxml import etree
from msgspec.structs import replace

from oncewire.entry.party.folder import KeyKind, make_keys
from oncewire.entry.party.partners import read_keys
from oncewire.handler.world import RealWorld
from oncewire.lab.bench.figures import Figure, Outcome, Plan
from oncewire.message.envelope import (
    DeliverySemantics,
    Header,
    Message,
    MessageKind,
    Payload,
    RoutingHeader,
    SequenceNumber,
)
from oncewire.message.form import Dialect, Form, Validation
from oncewire.message.ids import Party, PartyId, Service
from oncewire.message.instant import DAY, parse_instant
from oncewire.wire import answers, codec, header, limits, schema, splice, xml
from oncewire.wire.codec import Reader
from oncewire.wire.security import algorithms, signature
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import SigningChoice
from oncewire.wire.splice import envelope_in
from oncewire.wire.templates.envelope import EnvelopeTemplates

NOW = parse_instant("2026-01-05T10:00:00Z")[0]
ENVELOPE_BYTES = 2_500
CYCLE, LEARNED = "build + read + ack + read", "build + read + ack + read, learned"
LIMIT, BARE = "both envelopes parsed", "bare lxml parse"


# Turns: what several works cost, taken by turns, so that what disturbs one disturbs all.

Works = Mapping[str, Callable[[], object]]


def by_turns(works: Works, seconds: float, repeats: int = 1) -> list[dict[str, float]]:
    """Microseconds of each work, the best of many short turns; once for each repeat.

    Counted is the processor's time of this thread, so that a busy machine costs precision only.
    """
    found = []
    for _ in range(repeats):
        best = dict.fromkeys(works, float("inf"))
        end = time.perf_counter() + seconds / repeats
        while True:
            for name, work in works.items():
                begin = time.thread_time()
                for _ in range(5):
                    work()
                best[name] = min(best[name], (time.thread_time() - begin) / 5 * 1e6)
            if time.perf_counter() >= end:
                break
        found.append(best)
    return found


def order(dialect: Dialect) -> Message:
    """A reliable, ordered request with one payload and a header of the usual size."""
    ebms2 = dialect is Dialect.EBMS2
    made = Header(
        from_party=Party.of("006998397", "urn:ex:duns", "Buyer" if ebms2 else None),
        to_party=Party.of("123456789", "urn:ex:duns", "Seller" if ebms2 else None),
        cpa_id="alpha-beta-1",
        conversation_id="conv-77",
        service=Service("urn:ex:orders"),
        action="PlaceOrder",
        message_id="m-1001@alpha.example",
        timestamp=NOW,
        time_to_live=NOW + DAY,
        semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,
    )
    hop = RoutingHeader(
        "http://alpha.example/msh",
        "http://beta.example/msh",
        PartyId("006998397", "DUNS"),
        PartyId("123456789", "DUNS"),
        NOW,
        sequence=SequenceNumber(4711),
    )
    payload = Payload.of("order-1@alpha.example", "application/xml", b"<line>7 boxes</line>" * 102)
    message = Message(
        dialect,
        MessageKind.NORMAL,
        made,
        routing=() if ebms2 else (hop,),
        order=SequenceNumber(4711) if ebms2 else None,
        payloads=(payload,),
    )
    if not ebms2:
        return message
    # A Description brings the envelope to the size that real ones have.
    missing = ENVELOPE_BYTES - len(codec.write_envelope(message, Form(dialect))) - 60
    words = ("en", "seven boxes of paper " * (missing // 21))
    return replace(message, header=replace(made, descriptions=(words,)))


def in_pieces(parcel: codec.Parcel) -> None:
    """Read as a handler does whose transport hands in a body piece by piece."""
    reader = Reader(parcel.content_type, parcel.headers)
    reader.feed(parcel.body)
    reader.finish()


def works_of(dialect: Dialect) -> tuple[dict[str, Callable[[], object]], int]:
    """Each step by name, and the size of the header it works on."""
    form = Form(dialect)
    message = order(dialect)
    parcel = codec.write(message, form)
    received = codec.read(parcel)
    envelope, charset, bounds = received.envelope, received.charset, limits.DEFAULT_LIMITS
    root = xml.parse(envelope, charset, bounds)
    bare = etree.XMLParser(resolve_entities=False, no_network=True)
    answer = answers.Envelope("a-1@beta.example", NOW, form)
    acknowledgment = codec.write(answers.acknowledgment_for(received.message, answer), form)
    hop = RoutingHeader("http://hub.example", "http://beta.example", timestamp=NOW)
    templates = EnvelopeTemplates()
    templates.learn(received, "alpha", bounds)
    templates.learn(codec.read(acknowledgment), "beta", bounds)

    def cycle(learned: EnvelopeTemplates | None = None) -> None:
        taken = codec.read(codec.write(message, form), templates=learned)
        back = answers.acknowledgment_for(taken.message, answer)
        codec.read(codec.write(back, form), templates=learned)

    answered = codec.read(acknowledgment).envelope

    def parses() -> None:
        etree.fromstring(envelope, bare)
        etree.fromstring(answered, bare)

    return {
        CYCLE: cycle,
        LIMIT: parses,
        BARE: lambda: etree.fromstring(envelope, bare),
        "limits": lambda: limits.enforce(envelope, charset, bounds),
        "limits + tree": lambda: xml.parse(envelope, charset, bounds),
        "schema": lambda: schema.problems(root, dialect),
        "MIME frame": lambda: envelope_in(parcel, bounds),
        "header, every field": lambda: header.read(envelope, charset, bounds, Validation.OFF),
        "read": lambda: codec.read(parcel),
        "read, no schema": lambda: codec.read(parcel, validation=Validation.OFF),
        "read in pieces": lambda: in_pieces(parcel),
        "read acknowledgement": lambda: codec.read(acknowledgment),
        "build header": lambda: codec.write_envelope(message, form),
        "build": lambda: codec.write(message, form),
        "next hop": lambda: splice.next_hop(envelope, hop, form),
        "read, learned": lambda: codec.read(parcel, templates=templates),
        "read acknowledgement, learned": lambda: codec.read(acknowledgment, templates=templates),
        LEARNED: lambda: cycle(templates),
    }, len(envelope)


def run(plan: Plan) -> Outcome:
    """Every step of every dialect; the cycle of ebMS 2.0 is the first."""
    figures, findings = [], []
    for dialect in (Dialect.EBMS2, *(each for each in Dialect if each is not Dialect.EBMS2)):
        works, size = works_of(dialect)
        rounds = by_turns(works, plan.seconds * 2, plan.repeats)
        for name in works:
            if name in (LIMIT, BARE):
                continue
            bare = LIMIT if name in (CYCLE, LEARNED) else BARE
            times, limited = ([found[each] for found in rounds] for each in (name, bare))
            figures.append(Figure.of_times(f"{dialect.value}: {name}", times, limited))
        findings.append(f"{dialect.value}: header of {size:,} bytes, payload of 2 KB")
    return Outcome(
        "codec",
        "messages",
        "a bare lxml parse of the envelope; for a cycle, of both envelopes",
        tuple(figures),
        findings=tuple(findings),
    )


# --- signatures: a signed envelope made and verified, against the bare operation of the key ---
#
# Both start from bytes and do the whole work: parse, the transforms of the standard, digests,
# signature value; verifying also checks the certificate and the places of all blocks. The limit is
# a bare lxml parse and the operation of the key. `python -m bench.signature` compares with xmlsec,
# where that is installed.

KINDS = {"ecdsa-sha256": KeyKind.EC, "rsa-sha256": KeyKind.RSA}
"""The first is what `oncewire init` makes."""

PART = "order-1@alpha.example"
CONTENT = b"<line>7 boxes</line>" * 102


def signing_works_of(name: str, folder: Path) -> Works:
    """Signing and verifying with one kind of key, and what neither can do without."""
    now = RealWorld().now()
    files = make_keys(folder, name, now=now, kind=KINDS[name])
    keys = read_keys(files.certificate, files.key)
    key, certificate = keys.signing_key, keys.certificate
    unsigned = codec.write_envelope(order(Dialect.EBMS2), Form(Dialect.EBMS2))
    choice, trust = SigningChoice(name), Trust((certificate,))
    bare = etree.XMLParser(resolve_entities=False, no_network=True)

    def sign() -> bytes:
        digests = [PartDigests.of(PART, CONTENT, "sha256")]
        return signature.sign(unsigned, digests, key, certificate, choice).envelope

    signed, octets = sign(), b"x" * 1000
    value = algorithms.sign_octets(key, name, octets)

    def verify() -> None:
        digests = [PartDigests.of(PART, CONTENT, "sha256")]
        signature.verify_signature(signed, digests, trust, now)

    def bare_sign() -> None:
        etree.fromstring(unsigned, bare)
        algorithms.sign_octets(key, name, octets)

    def bare_verify() -> None:
        etree.fromstring(signed, bare)
        algorithms.verify_octets(certificate, name, octets, value, 0)

    return {"verify": verify, "verify, limit": bare_verify, "sign": sign, "sign, limit": bare_sign}


def run_signature(plan: Plan) -> Outcome:
    """Both kinds of keys."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="oncewire-bench-") as folder:
        for name in KINDS:
            rounds = by_turns(signing_works_of(name, Path(folder)), plan.seconds * 2, plan.repeats)
            for what in ("verify", "sign"):
                times = [found[what] for found in rounds]
                limits = [found[f"{what}, limit"] for found in rounds]
                figures.append(Figure.of_times(f"{what} {name}", times, limits))
    return Outcome(
        "signature", "messages", "a bare lxml parse and the key's operation", tuple(figures)
    )
