"""What a receiver takes of documents in parts, and what is left of those that it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from oncewire.agreement.agreement import Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import InvalidValue
from oncewire.handler.sending.transmit import Transmission
from oncewire.message.envelope import Message, Payload, Split
from oncewire.message.instant import HOUR, SECOND
from oncewire.protocol.documents import SplitDocument
from oncewire.protocol.states import OutgoingState
from oncewire.store.transition.transaction import WorkTransaction
from oncewire.wire import codec
from oncewire.wire.limits import DEFAULT_LIMITS
from oncewire.wire.mime.compression import ENCODINGS, compressed
from oncewire.wire.parcel import Parcel
from tests.handler.documents.test_life import DATA, EBMS2, SPLIT, clean, sent, submit, taken
from tests.handler.network import Network, agreement_text
from tests.handler.test_signed import signed_pair

Change = Callable[[Message], Message]
TEXT = b"".join(b"line %d of a long order\n" % number for number in range(4_000))


def changing(profile: str, extra: str, changes: dict[str, Change]) -> Network:
    """A pair between which somebody writes parts anew; none is signed."""
    pair = Network.pair(profile, extra)
    (deal,) = pair.alpha.context.agreements

    def changed(parcel: Parcel) -> Parcel:
        message = codec.read(parcel).message
        change = changes.get(message.header.message_id)
        return parcel if change is None else codec.write(change(message), deal.form)

    pair.change = changed
    return pair


def part(number: int, total: int = 10) -> str:
    return f"{number}-of-{total}.doc@alpha"


def with_split(number: int, total: int, split_id: str = "doc@alpha") -> Change:
    return lambda message: structs.replace(
        message, header=structs.replace(message.header, split=Split(split_id, number, total))
    )


def with_data(data: bytes) -> Change:
    def change(message: Message) -> Message:
        (payload,) = message.payloads
        made = Payload.of(payload.content_id, payload.media_type, data)
        kept = structs.replace(payload, size=made.size, digest=made.digest, data=data)
        return structs.replace(message, payloads=(kept,))

    return change


def refusals(pair: Network) -> str:
    rows = pair.rows(at="beta")
    return "\n".join(row.detail or "" for row in rows if row.kind == "refused")


def ends_with_one_notice(pair: Network) -> None:
    """The document is given to nobody, its sender is told once, and nothing is left of it."""
    pair.pass_time(*[HOUR] * 27)
    assert taken(pair) == []
    assert [notice.message_id for notice in pair.notices] == ["doc@alpha"]
    with pair.beta.context.store.reader() as reader:
        assert reader.spooled() == set()
        kept = [each.incoming.message_id for each in reader.incoming_list()]
        assert all(reader.incoming(name)[0].parcel is None for name in kept)


@pytest.mark.requirement("BIG-5", "BIG-6")
@pytest.mark.parametrize("profile", ["ms-0.9x", "window"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_split(3, 11), "says Total 11, earlier parts 10"),
        (with_split(2, 10), "part 2 of document doc@alpha came in two messages"),
    ],
    ids=["lying total", "overlapping ordinal"],
)
def test_a_part_that_contradicts_the_others_is_refused(
    profile: str, change: Change, words: str
) -> None:
    pair = changing(profile, SPLIT, {part(5): change})
    submit(pair, DATA)
    assert words in refusals(pair)
    ends_with_one_notice(pair)
    clean(pair)


def test_a_second_document_under_a_known_split_id_is_refused() -> None:
    changes: dict[str, Change] = {}
    pair = changing("ms-0.9x", SPLIT, changes)
    submit(pair, DATA)
    assert len(taken(pair)) == 1
    changes |= {f"{n}-of-10.other@alpha": with_split(n, 10) for n in range(1, 11)}
    submit(pair, DATA, message_id="other@alpha")
    assert "came in two messages" in refusals(pair)
    pair.pass_time(*[HOUR] * 3)
    assert [notice.message_id for notice in pair.notices] == ["other@alpha"]
    assert taken(pair) == []


def test_a_split_id_that_names_a_message_is_refused() -> None:
    changes: dict[str, Change] = {}
    pair = changing("ms-0.9x", SPLIT, changes)
    pair.send(1)
    changes |= {part(n): with_split(n, 10, "order-1@alpha") for n in range(1, 11)}
    submit(pair, DATA)
    assert "is the id of another message" in refusals(pair)


@pytest.mark.requirement("BIG-6")
@pytest.mark.parametrize(("profile", "extra"), [("ms-0.9x", SPLIT), ("ebms2", EBMS2)])
def test_parts_that_are_not_what_was_split_are_refused(profile: str, extra: str) -> None:
    pair = changing(profile, extra, {part(5): with_data(b"x" * 1000)})
    submit(pair, DATA)
    assert "are not what was split" in refusals(pair)
    ends_with_one_notice(pair)


def test_a_part_that_is_too_short_is_refused_with_the_document() -> None:
    pair = changing("ms-0.9x", SPLIT, {part(5): with_data(b"x" * 999)})
    submit(pair, DATA)
    assert "its parts leave gaps" in refusals(pair)
    ends_with_one_notice(pair)


@pytest.mark.requirement("BIG-6")
@pytest.mark.parametrize("altered", [True, False])
def test_a_document_that_is_complete_while_it_is_held_is_answered_when_it_is_whole(
    altered: bool,
) -> None:
    """All its parts wait for an earlier message; what becomes of them is told of the last one."""
    changes = {part(2, 5): with_data(b"x" * 1000)} if altered else {}
    pair = changing("window", SPLIT, changes)
    pair.send(1)
    away = [True]
    pair.lose_request = lambda post: post.message_id == "order-2@alpha" and away[0]
    pair.send(2)
    submit(pair, DATA[:5_000])
    states = {name: kept.outgoing.state for name, kept in sent(pair).items()}
    assert states[part(5, 5)] is OutgoingState.OUTSTANDING
    assert states[part(4, 5)] is OutgoingState.DELIVERED
    pair.crash("beta")
    pair.pass_time(90 * SECOND)
    assert sent(pair)[part(5, 5)].outgoing.state is OutgoingState.OUTSTANDING
    away[0] = False
    pair.pass_time(*[90 * SECOND] * 3)
    given = [each.message_id for each in taken(pair)]
    if altered:
        assert given == ["order-1@alpha", "order-2@alpha"]
        assert [notice.message_id for notice in pair.notices] == ["doc@alpha"]
        assert "are not what was split" in refusals(pair)
    else:
        assert given == ["order-1@alpha", "order-2@alpha", "doc@alpha"]
        assert pair.notices == []
        assert sent(pair)["doc@alpha"].outgoing.state is OutgoingState.DELIVERED
        clean(pair)


@pytest.mark.requirement("BIG-1", "BIG-2")
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("profile", ["ms-0.9x", "rm-0.78", "window", "ebms2"])
def test_compression_comes_first_and_is_undone(profile: str, encoding: str) -> None:
    extra = f'[payload]\nmax_size = 4000\ncompress = "{encoding}"\n'
    if profile == "ebms2":
        extra += '[wire]\nextensions = ["split", "compression"]\n'
    pair = Network.pair(profile, extra)
    submit(pair, TEXT, DATA)
    (given,) = taken(pair)
    assert [payload.data for payload in given.payloads] == [TEXT, DATA]
    assert {payload.content_encoding for payload in given.payloads} == {None}
    small = len(b"".join(compressed([TEXT], encoding)))
    assert len(sent(pair)) == 1 + -(-small // 4000) + 3
    clean(pair)


@pytest.mark.requirement("BIG-2")
def test_what_fits_once_it_is_compressed_is_not_split() -> None:
    pair = Network.pair("window", f'[payload]\nmax_size = {len(TEXT) - 1}\ncompress = "gzip"\n')
    submit(pair, TEXT)
    assert set(sent(pair)) == {"doc@alpha", "1-of-1.doc@alpha"}
    assert [given.payloads[0].data for given in taken(pair)] == [TEXT]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_bomb_is_refused_and_leaves_nothing(encoding: str) -> None:
    extra = f'[payload]\nmax_size = 400\ncompress = "{encoding}"\n'
    pair = Network.pair("ms-0.9x", extra)
    pair.alpha.context.limits = replace(DEFAULT_LIMITS, compression_ratio=10**9)
    submit(pair, bytes(8_000_000))
    assert "compression_ratio" in refusals(pair)
    ends_with_one_notice(pair)
    clean(pair)


@pytest.mark.parametrize(
    ("limit", "bound", "location"),
    [
        ("document_parts", 9, "document_parts"),
        ("document_bytes", 9_499, "document_bytes"),
        ("gathered_bytes", 5_000, "gathered_bytes"),
    ],
)
def test_what_is_more_than_is_taken_of_anybody_is_refused_by_the_name_of_its_limit(
    limit: str, bound: int, location: str
) -> None:
    pair = Network.pair("ms-0.9x", SPLIT)
    pair.beta.context.limits = replace(DEFAULT_LIMITS, **{limit: bound})
    submit(pair, DATA)
    assert f'"location":"{location}"' in refusals(pair)
    ends_with_one_notice(pair)


@pytest.mark.parametrize(
    ("key", "bound"), [("max_parts", 9), ("max_document", 9_499), ("quota", 5_000)]
)
def test_what_is_more_than_is_agreed_is_refused_by_the_name_of_its_key(
    key: str, bound: int
) -> None:
    """A sender that does not keep to it is met by its receiver."""
    pair = Network.pair("ms-0.9x", f"{SPLIT}{key} = {bound}\n")
    if key != "quota":
        with pytest.raises(InvalidValue, match=f"payload.{key}"):
            submit(pair, DATA)
    pair.alpha.context.agreements = Agreements(
        [read_toml(agreement_text("alpha", "beta", "ms-0.9x", SPLIT))]
    )
    submit(pair, DATA)
    assert f'"location":"payload.{key}"' in refusals(pair)
    ends_with_one_notice(pair)


def test_an_agreed_ratio_is_kept_by_both_sides() -> None:
    extra = '[payload]\nmax_size = 4000\ncompress = "gzip"\n'
    swelling = bytes(60_000_000)
    honest = Network.pair("ms-0.9x", extra.replace("4000", "1000000") + "max_ratio = 10\n")
    submit(honest, swelling)
    # It would be taken for a bomb, so it travels as it is.
    assert len(sent(honest)) == 61
    (given,) = taken(honest)
    assert given.payloads[0].size == len(swelling)
    lax = Network.pair("ms-0.9x", extra + "max_ratio = 10\n")
    lax.alpha.context.agreements = Agreements(
        [read_toml(agreement_text("alpha", "beta", "ms-0.9x", extra))]
    )
    lax.alpha.context.limits = replace(DEFAULT_LIMITS, compression_ratio=10**9)
    submit(lax, bytes(3_000_000))
    assert "compression_ratio" in refusals(lax)


def test_documents_of_one_partner_that_wait_for_parts_are_bounded() -> None:
    pair = Network.pair("ms-0.9x", SPLIT)
    pair.beta.context.limits = replace(DEFAULT_LIMITS, gathered_documents=2)
    pair.lose_request = lambda post: (
        post.message_id.startswith("10-of-10.")
        and Transmission(post.message_id, post.attempt, sent=True)
    )
    for number in range(3):
        submit(pair, DATA, message_id=f"doc-{number}@alpha")
    assert refusals(pair).count('"location":"gathered_documents"') >= 1
    assert "doc-2@alpha" not in {name for _, name in gathered(pair)}
    assert len(gathered(pair)) == 2
    pair.lose_request = lambda post: False
    pair.pass_time(*[HOUR] * 3)
    submit(pair, DATA, message_id="doc-3@alpha")
    names = [given.message_id for given in taken(pair)]
    assert names == ["doc-0@alpha", "doc-1@alpha", "doc-3@alpha"]
    assert [notice.message_id for notice in pair.notices] == ["doc-2@alpha"]


def gathered(pair: Network) -> set[tuple[str, str]]:
    with pair.beta.context.transition() as tx:
        return {document.key for document in tx.open_documents()}


def test_a_part_is_taken_without_a_look_at_other_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Network.pair("ms-0.9x", SPLIT)

    def walk(steps: WorkTransaction) -> list[SplitDocument]:
        raise AssertionError(steps)

    monkeypatch.setattr(WorkTransaction, "open_documents", walk)
    submit(pair, DATA)
    assert len(taken(pair)) == 1


@pytest.mark.parametrize("profile", ["rm-0.78", "ms-0.9x"])
@pytest.mark.parametrize("said", [True, False], ids=["extensions said", "not said"])
def test_no_signature_covers_what_a_draft_says_beside_a_payload(profile: str, said: bool) -> None:
    # Where a draft has it anyway, naming the extension moves it nowhere.
    more = '[wire]\nextensions = ["split", "compression"]\n' if said else ""
    compress = SPLIT.replace("[payload]\n", '[payload]\ncompress = "gzip"\n')
    pair = signed_pair(profile=profile, more=compress + more)
    submit(pair, TEXT[:5_000])
    (given,) = taken(pair)
    assert [payload.data for payload in given.payloads] == [TEXT[:5_000]]
    clean(pair)


@pytest.mark.long
@pytest.mark.parametrize(("encrypt", "acks"), [(False, False), (True, False), (False, True)])
def test_signed_and_encrypted_parts_become_a_document_too(encrypt: bool, acks: bool) -> None:
    pair = signed_pair(more=EBMS2, encrypt=encrypt, signed_acks=acks)
    submit(pair, DATA, b"more", TEXT)
    (given,) = taken(pair)
    assert [payload.data for payload in given.payloads] == [DATA, b"more", TEXT]
    clean(pair)
