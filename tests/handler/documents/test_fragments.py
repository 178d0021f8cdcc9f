"""Documents in fragments that another message names (`mid:`), as NHS Spine has them."""

from __future__ import annotations

import gzip
import itertools
import random
from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.errors import InvalidValue
from oncewire.journal.check import check_journal
from oncewire.message.envelope import Payload, Reference
from oncewire.message.ids import Service
from oncewire.message.instant import HOUR, MINUTE, SECOND
from oncewire.message.payload import Attachment, naming
from oncewire.protocol.documents import DocumentState
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from oncewire.wire.limits import DEFAULT_LIMITS
from tests.handler.documents.test_bounds import TEXT, refusals
from tests.handler.documents.test_life import DATA, clean, sent, submit, taken
from tests.handler.network import Network
from tests.handler.test_signed import signed_pair

MID = "[payload]\nmax_size = 1000\n"
PROFILE = "nhs-fragments"
ACTION = "COPC_IN000001UK01"


def test_it_leaves_as_fragments_and_a_message_that_names_them() -> None:
    pair = Network.pair(PROFILE, MID)
    submit(pair, DATA[:1_500], b"small")
    (given,) = taken(pair)
    assert given.message_id == "doc@alpha"
    assert given.header.action == "New"
    assert [payload.data for payload in given.payloads] == [DATA[:1_500], b"small"]
    assert [one.href for one in given.references] == ["cid:payload-0", "cid:payload-1"]
    *fragments, index = pair.between("alpha", "beta")
    assert len(fragments) == 3
    assert all(b"Content-Transfer-Encoding: base64" in each.body for each in fragments)
    read = [codec.read(parcel).message for parcel in fragments]
    assert {message.header.action for message in read} == {ACTION}
    assert {message.header.split for message in read} == {None}
    manifest = codec.read(index).message.manifest
    named = [f"mid:{n}-of-3.doc@alpha" for n in (1, 2, 3)]
    assert [one.href for one in manifest] == [*named, "cid:payload-1"]
    assert manifest[0].descriptions[0][1] == (
        'Filename="payload-0" ContentType=text/plain Compressed=No LargeAttachment=Yes '
        "OriginalBase64=No Length=730"
    )
    states = {each.outgoing.state for each in sent(pair).values()}
    assert states == {OutgoingState.DELIVERED}
    assert pair.notices == []
    clean(pair)
    # Each side counts one message, whichever of the two is asked.
    for engine in pair.engines.values():
        with engine.context.store.reader() as reader:
            report = check_journal(reader.journal_since(0, 10_000), healed=True)
        assert (report.messages, report.parts) == (1, 3)


@pytest.mark.requirement("BIG-1", "BIG-2", "BIG-6")
def test_compression_is_gzip_and_undone() -> None:
    pair = Network.pair(PROFILE, "[payload]\nmax_size = 4000\n")
    submit(pair, TEXT, DATA)
    (given,) = taken(pair)
    assert [payload.data for payload in given.payloads] == [TEXT, DATA]
    assert b"Compressed=Yes" in pair.between("alpha", "beta")[-1].body
    assert len(pair.to("beta")) < len(TEXT) // 4_000
    clean(pair)


def test_names_and_media_types_travel() -> None:
    pair = Network.pair(PROFILE, MID)
    scan = Payload.of("scan", "image/tiff", DATA, file_name='a "scan".tif')
    service = Service("urn:nhs:names:services:gp2gp")
    pair.send(
        service=service,
        action="RCMR_IN030000UK06",
        payloads=(scan,),
        conversation_id=None,
        message_id=None,
    )
    (given,) = taken(pair)
    (payload,) = given.payloads
    assert (payload.media_type, payload.file_name) == (scan.media_type, scan.file_name)
    assert given.header.action == "RCMR_IN030000UK06"


@pytest.mark.parametrize("seed", range(5))
def test_lost_fragments_and_answers_are_sent_again_alone(seed: int) -> None:
    luck = random.Random(seed)
    pair = Network.pair(
        PROFILE,
        MID + '[delivery]\npersist_duration = "PT1H"\nretries = 9\n',
        lose_request=lambda post: post.attempt < 2 and luck.random() < 0.4,
        lose_answer=lambda number: number < 20 and number % (seed + 3) == 0,
    )
    submit(pair, DATA)
    for _ in range(12):
        pair.pass_time(60 * SECOND)
        if seed % 2:
            pair.crash("alpha")
            pair.crash("beta")
    assert [given.payloads[0].data for given in taken(pair)] == [DATA]
    assert sent(pair)["doc@alpha"].outgoing.state is OutgoingState.DELIVERED
    assert pair.notices == []
    clean(pair)


@pytest.mark.parametrize("lost", ["7-of-14.doc@alpha", "doc@alpha"])
def test_what_never_arrives_is_one_notice_and_leaves_nothing(lost: str) -> None:
    pair = Network.pair(PROFILE, MID)
    pair.lose_request = lambda post: post.message_id == lost
    submit(pair, DATA)
    pair.pass_time(*[HOUR] * 3)
    assert taken(pair) == []
    assert [notice.message_id for notice in pair.notices] == ["doc@alpha"]
    assert "no message named a fragment" in refusals(pair)
    with pair.beta.context.store.reader() as reader:
        assert reader.spooled() == set()
    clean(pair)


def test_an_operator_gives_it_up_before_it_is_named() -> None:
    pair = Network.pair(PROFILE, MID, lose_request=lambda post: True)
    submit(pair, DATA)
    pair.alpha.abandon("doc@alpha")
    pair.settle("alpha")
    assert [notice.message_id for notice in pair.notices] == ["doc@alpha"]
    assert sent(pair)["doc@alpha"].outgoing.state is OutgoingState.NOT_DELIVERED


def test_a_submission_that_is_repeated_is_the_same_document() -> None:
    pair = Network.pair(PROFILE, MID)
    submit(pair, DATA)
    submit(pair, DATA)
    assert len(taken(pair)) == 1
    with pytest.raises(InvalidValue, match="used for another"):
        submit(pair, DATA + b"!")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[sequence]\nnumbered = true\n", "no place in a numbered stream"),
        ('[flow]\nmode = "window"\nwindow = 4\n', "no place in a numbered stream"),
        ("", "one message names 900 of them at most"),
    ],
)
def test_what_cannot_travel_in_fragments_is_refused_by_name(more: str, words: str) -> None:
    pair = Network.pair(PROFILE, MID.replace("1000", "10") + more)
    with pytest.raises(InvalidValue, match=words):
        submit(pair, DATA)


def test_another_compression_is_refused_by_name() -> None:
    pair = Network.pair(PROFILE, MID + 'compress = "deflate"\n')
    with pytest.raises(InvalidValue, match="compressed by gzip or not at all"):
        submit(pair, DATA)


def test_signed_fragments_become_a_document_too() -> None:
    pair = signed_pair(more=MID + 'parts = "mid"\n')
    submit(pair, DATA, b"more")
    (given,) = taken(pair)
    assert [payload.data for payload in given.payloads] == [DATA, b"more"]
    clean(pair)


# --- as others send them -----------------------------------------------------------------------

HL7 = Payload.of("hl7", "application/xml", b"<COPC_IN000001UK01/>")


class Spine(Network):
    """A pair of which somebody else plays the sender, in whatever order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.send(0, b"whole")
        self.plain = self.line[0].message
        assert len(taken(self)) == 1

    def fragment(self, name: str, data: bytes, action: str = ACTION) -> str:
        payload = Payload.of("attachment", "text/plain", data)
        said = Attachment("scan.tif", "image/tiff", length=len(data)).described("cid:attachment")
        return self._put(name, action, (Reference("cid:hl7"), said), (HL7, payload))

    def index(
        self, name: str, *named: str, compressed: bool = False, file: str = "scan.tif"
    ) -> str:
        said = Attachment(file, "image/tiff", compressed=compressed, large=True)
        references = (Reference("cid:hl7"), *(said.described(naming(each)) for each in named))
        return self._put(name, "RCMR_IN030000UK06", references, (HL7,))

    def _put(
        self, name: str, action: str, manifest: tuple[Reference, ...], payloads: tuple[Payload, ...]
    ) -> str:
        header = structs.replace(self.plain.header, message_id=name, action=action)
        message = structs.replace(self.plain, header=header, manifest=manifest, payloads=payloads)
        (deal,) = self.alpha.context.agreements
        before = len(self.answers)
        answer = self.deliver("beta", codec.write(message, deal.form))
        said = self.answers[before:]
        if answer.parcel is not None:
            said.append(b"".join(part for part in answer.parcel.body if isinstance(part, bytes)))
        told = b"".join(said)
        for code in (b"Inconsistent", b"NotSupported", b"DeliveryFailure", b"MimeProblem"):
            if code in told:
                return code.decode()
        return "Acknowledgment" if b"Acknowledgment" in told else ""


@pytest.fixture
def spine() -> Spine:
    return Spine.pair(PROFILE)


@pytest.mark.requirement("BIG-6")
@pytest.mark.parametrize("order", [*itertools.permutations(range(3))], ids=str)
def test_fragments_and_what_names_them_come_in_any_order(
    spine: Spine, order: tuple[int, ...]
) -> None:
    content = gzip.compress(DATA)
    half = len(content) // 2
    steps = (
        lambda: spine.index("whole", "F1", "F2", compressed=True),
        lambda: spine.fragment("F1", content[:half]),
        lambda: spine.fragment("F2", content[half:]),
    )
    for number in order:
        assert taken(spine) == []
        spine.crash("beta")
        assert steps[number]() == "Acknowledgment"
    (given,) = taken(spine)
    assert given.message_id == "whole"
    assert [payload.data for payload in given.payloads] == [HL7.data, DATA]
    # Copies of any of them change nothing.
    for step in steps:
        assert step() == "Acknowledgment"
    assert taken(spine) == []
    with spine.beta.context.store.reader() as reader:
        assert [one for one in reader.journal_since(0, 10_000) if one.kind == "joined"][1:] == []
    assert spine.verify(healed=False).clean


def test_what_names_nothing_is_a_message_like_any_other(spine: Spine) -> None:
    assert spine.fragment("plain", b"data", action="Other") == "Acknowledgment"
    (given,) = taken(spine)
    assert [payload.content_id for payload in given.payloads] == ["hl7", "attachment"]


def test_a_document_may_have_several_files(spine: Spine) -> None:
    first = Attachment("a.tif", "image/tiff", large=True).described("mid:F1")
    second = Attachment("b.tif", "image/tiff", large=True).described("mid:F2")
    spine._put("whole", "RCMR_IN030000UK06", (Reference("cid:hl7"), first, second), (HL7,))
    spine.fragment("F2", b"of b")
    spine.fragment("F1", b"of a")
    (given,) = taken(spine)
    assert [payload.data for payload in given.payloads] == [HL7.data, b"of a", b"of b"]
    names = [payload.content_id for payload in given.payloads]
    assert len(set(names)) == 3


def state(spine: Spine, split_id: str) -> DocumentState | None:
    with spine.beta.context.store.reader() as reader:
        document = reader.document("urn:test:alpha", split_id)
    return None if document is None else document.state


@pytest.mark.parametrize(
    ("named", "code", "words"),
    [
        (("F1", "F1"), "Inconsistent", "names a message twice"),
        (("second",), "Inconsistent", "names a message twice, or its own"),
        (("F1", "taken"), "Inconsistent", "another message names the fragment taken too"),
        (("first",), "NotSupported", "names fragments itself"),
        (("order-0@alpha",), "Inconsistent", "was the application's before"),
    ],
)
def test_what_cannot_be_a_fragment_is_refused_by_name(
    spine: Spine, named: tuple[str, ...], code: str, words: str
) -> None:
    assert spine.index("first", "taken") == "Acknowledgment"
    assert spine.index("second", *named) == code
    assert words in refusals(spine)
    assert spine.fragment("taken", b"data") == "Acknowledgment"
    assert [given.message_id for given in taken(spine)] == ["first"]


def test_a_fragment_that_names_fragments_is_refused(spine: Spine) -> None:
    assert spine.index("core", "copc") == "Acknowledgment"
    assert spine.index("copc", "F1", "F2") == "NotSupported"
    assert taken(spine) == []


def test_a_fragment_of_what_was_given_up_is_refused(spine: Spine) -> None:
    spine.index("whole", "F1", "F2")
    spine.fragment("F1", b"data")
    spine.pass_time(6 * MINUTE)
    assert state(spine, "whole") is DocumentState.FAILED
    assert spine.fragment("F2", b"more") == "DeliveryFailure"
    assert spine.index("other", "F1") == "Inconsistent"
    assert taken(spine) == []
    assert spine.verify(healed=False).clean


def test_a_fragment_that_nobody_names_is_given_up_and_said(spine: Spine) -> None:
    spine.fragment("F1", b"data" * 10_000)
    spine.pass_time(6 * MINUTE)
    spine.fragment("F2", b"data")
    spine.pass_time(6 * MINUTE)
    # One that came later says that the others are still wanted.
    assert refusals(spine) == ""
    spine.pass_time(6 * MINUTE)
    assert refusals(spine).count("no message named a fragment within persistDuration") == 2
    assert spine.index("late", "F1") == "DeliveryFailure"
    spine.pass_time(HOUR)
    assert spine.index("later", "F1") == "DeliveryFailure"
    with spine.beta.context.store.reader() as reader:
        assert reader.spooled() == set()
    assert taken(spine) == []
    assert spine.verify(healed=False).clean


@pytest.mark.parametrize(
    ("limit", "bound"), [("document_parts", 2), ("document_bytes", 10), ("gathered_bytes", 10)]
)
def test_bounds_hold_for_fragments_too(spine: Spine, limit: str, bound: int) -> None:
    spine.beta.context.limits = replace(DEFAULT_LIMITS, **{limit: bound})
    spine.index("whole", "F1", "F2")
    spine.fragment("F1", b"data" * 5)
    assert f'"location":"{limit}"' in refusals(spine)


def test_a_bomb_in_fragments_is_refused_and_leaves_nothing(spine: Spine) -> None:
    content = gzip.compress(bytes(20_000_000))
    spine.index("bomb", "F1", compressed=True)
    assert spine.fragment("F1", content) == "MimeProblem"
    assert "compression_ratio" in refusals(spine)
    assert state(spine, "bomb") is DocumentState.FAILED
    spine.pass_time(10 * SECOND)
    with spine.beta.context.store.reader() as reader:
        assert reader.spooled() == set()
