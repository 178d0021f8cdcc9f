"""With templates and without, the same is read, proved and signed, whatever is in a message.

One template each is made of the messages of every dialect, of the corpus and of those that
Hypothesis draws; then envelopes like them, whole and damaged, go both ways.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from oncewire.errors import SecurityFailure
from oncewire.message.envelope import Message
from oncewire.message.form import Dialect
from oncewire.wire import codec
from oncewire.wire.inspection import CaptureKind, open_capture
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.parcel import ReadFault
from oncewire.wire.security import references, signature, wrapping
from oncewire.wire.security.certificates import Trust
from oncewire.wire.security.references import PartDigests
from oncewire.wire.security.signature import Covered, Signature, SigningChoice
from oncewire.wire.templates.envelope import Templates, signature_template
from oncewire.wire.templates.slotted import slotted
from tests.wire import samples
from tests.wire.samples import corpus_bytes, corpus_messages
from tests.wire.security import keys
from tests.wire.strategies import messages
from tests.wire.templates.likes import (
    REPORT,
    agrees,
    envelopes,
    learn,
    like,
    signed_envelopes,
    spans_of,
)

EACH = pytest.mark.parametrize("dialect", list(Dialect))
CASES = 150
"""Likenesses of each envelope; one takes some fifty microseconds."""


@pytest.mark.long
@EACH
def test_an_envelope_like_another_is_read_alike(dialect: Dialect) -> None:
    read = 0
    for number, envelope in enumerate(envelopes(dialect)):
        template = learn(envelope)
        assert template is not None, envelope
        assert agrees(template, envelope)
        spans = spans_of(envelope)
        for case in range(CASES):
            chance = random.Random(f"{dialect.value}:{number}:{case}")
            read += agrees(template, like(chance, envelope, spans))
    # Likenesses that no template reads would show nothing.
    assert read > CASES


@pytest.mark.long
def test_the_corpus_is_read_alike(corpus: Path) -> None:
    learned_of = hits = 0
    for path, envelope, charset in _corpus_envelopes(corpus):
        template = learn(envelope, charset)
        if template is None:
            continue
        learned_of += 1
        assert agrees(template, envelope, charset)
        spans = spans_of(envelope)
        for case in range(CASES):
            changed = like(random.Random(f"{path}:{case}"), envelope, spans)
            hits += agrees(template, changed, charset)
    assert learned_of > 10
    assert hits > learned_of


def _corpus_envelopes(corpus: Path) -> Iterator[tuple[str, bytes, str | None]]:
    for path in corpus_messages(corpus):
        try:
            capture = open_capture(corpus_bytes(corpus, path))
            if capture.kind is CaptureKind.XML:
                received = codec.read_header(capture.parcel.body)
            else:
                received = codec.read(capture.parcel)
        except ReadFault:
            continue
        yield path, received.envelope, received.charset


@pytest.mark.long
@EACH
@settings(max_examples=30)
@given(data=st.data())
def test_any_message_is_read_signed_and_proved_alike(data: st.DataObject, dialect: Dialect) -> None:
    message = data.draw(messages(dialect, typed=False))
    other = data.draw(messages(dialect, typed=False))
    said, more = message.header, other.header
    changed = replace(
        said,
        message_id=more.message_id,
        conversation_id=more.conversation_id,
        timestamp=more.timestamp,
        time_to_live=said.time_to_live and more.timestamp,
    )
    templates, plain = Templates(), Templates(enabled=False)
    form = samples.form(dialect)
    for each in (message, replace(message, header=changed), other, message):
        envelope = codec.write_envelope(each, form)
        asked = envelope, "UTF-8", DEFAULT_LIMITS, REPORT
        found = templates.envelopes.read(*asked)
        if found is not None:
            assert found == codec.header.read(*asked), envelope
        templates.envelopes.learn_envelope(*asked[:2], "alpha", *asked[2:])
        assert _signed(templates, envelope, each) == _signed(plain, envelope, each)
    assert len(plain.envelopes) == len(plain.signatures) == 0


def _signed(templates: Templates, envelope: bytes, message: Message) -> object:
    """The signed envelope, what is proved by it and what is read of that; or why not."""
    # A key whose signatures are the same each time.
    who = keys.alpha("rsa")
    digests = [PartDigests.of(part.content_id, part.data or b"") for part in message.payloads]
    signer = templates.signatures
    try:
        signed = signer.sign(envelope, digests, who.key, who.certificate, SigningChoice())
        trust = Trust((who.certificate,))
        return signed, signer.verify("alpha", signed.envelope, digests, trust, keys.NOW)
    except SecurityFailure as failure:
        return failure.problem


@pytest.mark.long
def test_a_signed_envelope_like_another_is_proved_alike() -> None:
    alike = 0
    for number, envelope in enumerate(signed_envelopes()[:2]):
        document = slotted(envelope)
        template = signature_template(envelope, document, _by_tree(envelope)[1])
        assert template is not None
        spans = spans_of(envelope)
        for case in range(1500):
            changed = like(random.Random(f"{number}:{case}"), envelope, spans)
            other = slotted(changed)
            found = template.signature(other.slots) if other.key == document.key else None
            if found is not None:
                said, shown = _by_tree(changed)
                assert found == said, changed
                assert template.shows(other.slots, shown), changed
                alike += 1
    assert alike > 200


def _by_tree(envelope: bytes) -> tuple[Signature, Covered]:
    """What the tree says of an envelope, whether its digests are right or not."""
    root = references.parse(envelope)
    frame = wrapping.frame_of(root)
    found = signature.read_signature(frame.header)
    wrapping.check_blocks(root, frame)
    reference = found.envelope_reference
    left_out = (reference.exclusion or references.NOTHING).subtrees(root)
    wrapping.check_left_out(left_out, frame)
    octets = signature.covered_octets(root, found, left_out)
    readable = signature.readable(octets, references.parse(octets), left_out)
    plain = Signature(
        found.octets, found.name, found.canonicalization, found.value, found.references,
        found.key_info,
    )  # fmt: skip
    tags = tuple(str(block.tag) for block in left_out)
    return plain, Covered(found.references, octets, readable, tags, ())
