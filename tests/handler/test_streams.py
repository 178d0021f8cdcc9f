"""Large documents from the application to the application: read once, named ever after, held by
nobody."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import random
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest
from msgspec import structs

from oncewire.errors import InvalidValue, StoreDamaged
from oncewire.handler.actions import Submission
from oncewire.handler.content_digest import check_kept, with_pieces_digest
from oncewire.handler.encryption import ENCRYPTED_BYTES_MAX, whole_parcel
from oncewire.handler.receiving.inbound import PASSED_BYTES_MAX, _max_size
from oncewire.handler.runtime.handler import Handler, check_files
from oncewire.handler.sending.submit import HandedIn
from oncewire.message.envelope import Payload
from oncewire.message.form import Security
from oncewire.message.ids import Service
from oncewire.message.payload import DistantPayload
from oncewire.protocol.states import OutgoingState
from oncewire.protocol.terms import Terms
from oncewire.store.memory.store import MemorySpool
from oncewire.store.records import SpoolSlice, StoredParcel
from oncewire.transport.contract import AttemptOutcome, Cargo, OutcomeKind
from oncewire.wire.limits import DEFAULT_LIMITS
from tests.handler.network import Network
from tests.handler.running import FAST, Wire, free_port, serving
from tests.handler.test_http import SYNC as FAST_SYNC
from tests.handler.test_signed import signed_pair
from tests.handler.test_spooling import files, node_of

MEGABYTE = 1024 * 1024
BLOCK = 65_536
SERVICE = Service("urn:test:orders")


class Long(io.RawIOBase):
    """So many bytes that are nowhere, each block of them another one."""

    def __init__(self, size: int) -> None:
        self.left = self.size = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        at = self.size - self.left
        number, begin = divmod(at, BLOCK)
        count = min(len(buffer), self.left, BLOCK - begin)
        block = hashlib.sha256(str(number).encode()).digest() * (BLOCK // 32)
        buffer[:count] = block[begin : begin + count]
        self.left -= count
        return count


class LongContent:
    """See `Content`."""

    def __init__(self, size: int) -> None:
        self.size = size

    def open(self) -> BinaryIO:
        return io.BufferedReader(Long(self.size), 65_536)

    def digest(self) -> str:
        with self.open() as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def submission(*contents: LongContent, **more: object) -> Submission:
    payloads = tuple(
        DistantPayload(f"doc-{number}", "application/octet-stream", 0, "", content=content)
        for number, content in enumerate(contents)
    )
    return Submission("alpha-beta", SERVICE, "New", payloads, **more)  # type: ignore[arg-type]


def read(payload: Payload) -> str:
    with payload.open() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def handed(pair: Network, given: Submission) -> Submission:
    """What the engine is given of it: everything is read."""
    there = HandedIn(pair.alpha.context.store.spool, (given,))
    there.read()
    there.kept = True
    return there.submissions[0]


async def test_a_document_is_one_file_at_each_side_and_nowhere_in_memory(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    content = LongContent(24 * MEGABYTE)
    async with (
        serving(tmp_path, "beta", "alpha", ports, extra=FAST_SYNC) as beta,
        serving(tmp_path, "alpha", "beta", ports, extra=FAST_SYNC) as alpha,
    ):
        # Whatever is made once is made.
        await passed(alpha, beta, LongContent(2 * MEGABYTE))
        tracemalloc.start()
        try:
            await passed(alpha, beta, content)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 * MEGABYTE
        for side in ("alpha", "beta"):
            folder = tmp_path / f"{side}.db.spool"
            size = sum(file.stat().st_size for file in folder.iterdir())
            assert 26 * MEGABYTE <= size < 26.2 * MEGABYTE
        assert content.digest() in files(tmp_path / "alpha.db")


async def passed(alpha: Handler, beta: Handler, content: LongContent) -> None:
    sent = await alpha.send(submission(content))
    assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
    (taken,) = await beta.take()
    (payload,) = taken.payloads
    assert (payload.size, payload.digest) == (content.size, content.digest())
    assert read(payload) == content.digest()
    await beta.confirm(taken.sender, taken.message_id)


@pytest.fixture(params=["window", "rm-0.78"])
def pair(request: pytest.FixtureRequest) -> Iterator[Network]:
    found = Network.pair(request.param)
    yield found
    found.close()


def test_what_waits_for_its_number_waits_as_a_file(pair: Network) -> None:
    """The first message of a channel travels alone; the next ones are drafts meanwhile."""
    pair.lose_request = lambda post: post.attempt == 1
    contents = [LongContent(2 * MEGABYTE + number) for number in range(3)]
    sent = [
        pair.alpha.submit(handed(pair, submission(content, conversation_id="talk")))
        for content in contents
    ]
    pair.settle("alpha")
    with pair.alpha.context.store.reader() as reader:
        assert [reader.outgoing_parcel(one.message_id) is None for one in sent] == [
            False,
            True,
            True,
        ]
        assert reader.spooled() == {content.digest() for content in contents}
    for _ in range(20):
        pair.pass_time()
    assert [pair.state(one.message_id) for one in sent] == [OutgoingState.DELIVERED] * 3
    given = pair.beta.hand_over(10, 60_000_000)
    found = sorted(read(message.payloads[0]) for message in given)
    assert found == sorted(content.digest() for content in contents)
    for message in given:
        pair.beta.confirm(message.sender, message.message_id)
    pair.settle("beta")
    assert pair.verify().clean


def test_the_bytes_are_those_of_a_message_that_was_written_whole() -> None:
    """Laid out around its file, a document has the bytes that it would have had in memory."""
    content = LongContent(MEGABYTE + 5)
    with content.open() as file:
        data = file.read()
    parcels = []
    for given in (
        submission(content, message_id="m@alpha", conversation_id="c"),
        Submission(
            "alpha-beta",
            SERVICE,
            "New",
            (Payload.of("doc-0", "application/octet-stream", data),),
            message_id="m@alpha",
            conversation_id="c",
        ),
    ):
        pair = Network.pair("ebms2")
        pair.lose_request = lambda post: True
        whole = given.payloads[0] if isinstance(given.payloads[0], DistantPayload) else None
        pair.alpha.submit(given if whole is None else handed(pair, given))
        pair.settle("alpha")
        with pair.alpha.context.store.reader() as reader:
            stored = reader.outgoing_parcel("m@alpha")
        assert stored is not None
        cut = [part for part in stored.body if isinstance(part, SpoolSlice)]
        assert [part.length for part in cut] == [stored.size if whole is None else MEGABYTE + 5]
        parcels.append(whole_parcel(pair.alpha.context, stored))
        pair.close()
    laid, written = parcels
    assert laid.content_type == written.content_type
    assert dict(laid.headers) == dict(written.headers)
    assert laid.body == written.body


def test_a_large_document_is_signed_by_its_digest() -> None:
    pair = signed_pair(signed_acks=True)
    content = LongContent(3 * MEGABYTE)
    sent = pair.alpha.submit(handed(pair, submission(content)))
    pair.settle("alpha")
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    (given,) = pair.beta.hand_over(10, 60_000_000)
    assert read(given.payloads[0]) == content.digest()


def test_what_is_too_large_to_be_encrypted_is_refused_by_name() -> None:
    pair = signed_pair(encrypt=True)
    digest = "0" * 64
    size = ENCRYPTED_BYTES_MAX + 1
    large = Payload("doc", "text/plain", size, digest, spooled=digest)
    with pytest.raises(InvalidValue, match="no more than 134,217,728 are encrypted"):
        pair.alpha.submit(Submission("alpha-beta", SERVICE, "New", (large,)))
    sent = pair.alpha.submit(handed(pair, submission(LongContent(2 * MEGABYTE))))
    pair.settle("alpha")
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    (given,) = pair.beta.hand_over(10, 60_000_000)
    assert read(given.payloads[0]) == LongContent(2 * MEGABYTE).digest()


async def test_what_is_refused_or_repeated_leaves_no_file(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    content = LongContent(2 * MEGABYTE)
    async with serving(tmp_path, "alpha", "beta", ports, extra=FAST) as alpha:
        nobody = Submission("nobody", SERVICE, "New", submission(content).payloads)
        with pytest.raises(Exception, match="there is no agreement"):
            await alpha.send(nobody)
        assert files(tmp_path / "alpha.db") == []
        given = submission(content, message_id="once@alpha", conversation_id="talk")
        first = await alpha.send(given)
        assert not first.repeated
        assert (await alpha.send(given)).repeated
        assert files(tmp_path / "alpha.db") == [content.digest()]
        other = submission(
            LongContent(2 * MEGABYTE + 1), message_id="once@alpha", conversation_id="talk"
        )
        with pytest.raises(InvalidValue, match="was used for another message"):
            await alpha.send(other)
        assert files(tmp_path / "alpha.db") == [content.digest()]


async def test_a_file_that_has_changed_is_given_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S15: it is read before it is given, beside the turns of everybody else."""
    ports = {"alpha": free_port(), "beta": free_port()}
    async with (
        serving(tmp_path, "beta", "alpha", ports, extra=FAST_SYNC) as beta,
        serving(tmp_path, "alpha", "beta", ports, extra=FAST_SYNC) as alpha,
    ):
        sent = await alpha.send(submission(LongContent(2 * MEGABYTE)))
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        monkeypatch.setattr(beta.engine.context.state.proofs, "_fresh", {})
        (file,) = (tmp_path / "beta.db.spool").iterdir()
        with file.open("r+b") as changed:
            changed.seek(MEGABYTE)
            changed.write(b"another document")
        assert await beta.take() == []
        with beta.engine.context.store.reader() as reader:
            (incident,) = reader.incidents()
        assert "no longer say what was accepted" in incident.reason


def altered(file: Path) -> None:
    with file.open("r+b") as changed:
        changed.seek(MEGABYTE)
        changed.write(b"another document")


def shortened(file: Path) -> None:
    with file.open("r+b") as changed:
        changed.truncate(MEGABYTE)


@pytest.mark.parametrize("harm", [altered, shortened])
async def test_a_file_that_changes_after_its_proof_is_not_read_to_its_end(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """S15: whoever reads a document learns it before he has its last bytes, and the next
    hand-over, which proves the file again, calls the operator."""
    ports = {"alpha": free_port(), "beta": free_port()}
    async with (
        serving(tmp_path, "beta", "alpha", ports, extra=FAST_SYNC) as beta,
        serving(tmp_path, "alpha", "beta", ports, extra=FAST_SYNC) as alpha,
    ):
        content = LongContent(2 * MEGABYTE)
        sent = await alpha.send(submission(content))
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        beta.lease = 0
        # It has just arrived, so it is given without being read.
        (taken,) = await beta.take()
        (payload,) = taken.payloads
        harm(next((tmp_path / "beta.db.spool").iterdir()))
        with payload.open() as file, pytest.raises(StoreDamaged):
            file.read(content.size)
        with pytest.raises(StoreDamaged):
            assert payload.data
        assert await beta.take() == []
        with beta.engine.context.store.reader() as reader:
            (incident,) = reader.incidents()
        assert "no longer say what was accepted" in incident.reason


@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x", "rm-0.78"])
@pytest.mark.parametrize("size", [5, 2 * MEGABYTE])
def test_names_and_media_types_travel(profile: str, size: int) -> None:
    pair = Network.pair(profile)
    named = [("Übersicht März.ods", "application/ods"), ("../../etc/passwd", "text/x-secret")]
    payloads = tuple(
        Payload.of(f"doc-{number}", kind, bytes([number]) * size, name)
        for number, (name, kind) in enumerate(named)
    )
    given = Submission("alpha-beta", SERVICE, "New", payloads)
    pair.alpha.submit(handed(pair, given))
    pair.settle("alpha")
    (taken,) = pair.beta.hand_over(10, 60_000_000)
    found = [(payload.file_name, payload.media_type) for payload in taken.payloads]
    assert found == [("Übersicht März.ods", "application/ods"), ("passwd", "text/x-secret")]


def test_pieces_that_have_changed_are_not_sent() -> None:
    """The file is known by its name; what stands around it by a digest of its own (S15)."""
    pair = Network.pair("ebms2")
    pair.lose_request = lambda post: True
    sent = pair.alpha.submit(handed(pair, submission(LongContent(2 * MEGABYTE))))
    pair.settle("alpha")
    with pair.alpha.context.store.reader() as reader:
        stored = reader.outgoing_parcel(sent.message_id)
    assert stored is not None
    check_kept(stored, sent.message_id)
    head, file, tail = stored.body
    assert isinstance(head, bytes)
    for body in (
        (head.replace(b"urn:test:beta", b"urn:test:zeta"), file, tail),
        (head, SpoolSlice(stored.spooled[0], 1, 2 * MEGABYTE - 1), tail),
        (head, file),
    ):
        with pytest.raises(StoreDamaged, match="have changed"):
            check_kept(structs.replace(stored, body=body), sent.message_id)
    pair.close()


async def test_a_body_of_pieces_is_sent_with_the_digest_of_the_whole(tmp_path: Path) -> None:
    """Its receiver turns away what was damaged on its way."""
    wire = Wire()
    wire.gate.set()
    headers: list[dict[str, str]] = []
    send = wire.send

    async def heard(cargo: Cargo, address: str, *, timeout: float) -> AttemptOutcome:
        headers.append(dict(cargo.headers))
        return await send(cargo, address, timeout=timeout)

    wire.send = heard  # type: ignore[method-assign]
    async with Handler(node_of(tmp_path / "b.db"), {"http": wire}) as handler:
        await handler.send(submission(LongContent(2 * MEGABYTE)))
        async with asyncio.timeout(20):
            while not wire.sent:
                await asyncio.sleep(0.01)
    digest = base64.b64encode(hashlib.sha256(wire.sent[0]).digest()).decode()
    assert headers[0]["Content-Digest"] == f"sha-256=:{digest}:"


@pytest.mark.parametrize(("offset", "length"), [(0, 10), (3, 5), (0, 3 * MEGABYTE), (7, MEGABYTE)])
def test_the_digest_of_a_range_is_that_of_the_bytes_that_leave(offset: int, length: int) -> None:
    spool = MemorySpool()
    data = random.Random(offset).randbytes(3 * MEGABYTE)
    name, _ = spool.put((data,))
    kept = with_pieces_digest(StoredParcel("a/b", (), (b"front", SpoolSlice(name, offset, length))))
    sent = check_files(spool, kept)
    body = b"front" + data[offset : offset + length]
    stated = base64.b64encode(hashlib.sha256(body).digest()).decode()
    assert sent.headers == (("Content-Digest", f"sha-256=:{stated}:"),)


def test_what_must_be_held_is_bounded() -> None:
    """What is encrypted is opened in memory, and so is what a hub passes on unstored."""
    terms = Terms()

    def bound(terms: Terms, *, passed: bool = False, encrypt: bool = False) -> int | None:
        resolution = SimpleNamespace(terms=terms, security=Security(encrypt=encrypt))
        return _max_size(resolution, passed=passed)  # type: ignore[arg-type]

    assert bound(terms) is None
    assert bound(terms, encrypt=True) == 2 * ENCRYPTED_BYTES_MAX + 65_536
    assert bound(terms, passed=True) == PASSED_BYTES_MAX
    assert bound(structs.replace(terms, max_size=10), passed=True) == 10


def test_an_endless_document_ends_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = replace(DEFAULT_LIMITS, document_bytes=3 * MEGABYTE)
    monkeypatch.setattr("oncewire.handler.sending.submit.DEFAULT_LIMITS", bounded)
    spool = MemorySpool()
    there = HandedIn(spool, (submission(LongContent(4 * MEGABYTE)),))
    with pytest.raises(InvalidValue, match="more than 3,145,728 bytes"):
        there.read()
    assert spool.remove_unreferenced(set()) == 0


def test_a_document_that_changed_since_it_was_digested_is_refused() -> None:
    content = LongContent(2 * MEGABYTE)
    given = DistantPayload("doc", "text/plain", content.size, "0" * 64, content=content)
    there = HandedIn(MemorySpool(), (Submission("alpha-beta", SERVICE, "New", (given,)),))
    with pytest.raises(InvalidValue, match="not what its digest says"):
        there.read()
    assert there.files == []


async def test_how_far_a_large_message_is_is_known_while_it_leaves(tmp_path: Path) -> None:
    wire = Wire()
    seen: list[dict[str, tuple[int, int]]] = []
    async with Handler(node_of(tmp_path / "b.db"), {"http": wire}) as handler:

        async def send(cargo: Cargo, _address: str, *, timeout: float) -> AttemptOutcome:
            seen.extend([handler.transfers() async for _ in cargo.chunks()])
            return AttemptOutcome(OutcomeKind.SENT)

        wire.send = send  # type: ignore[method-assign]
        sent = await handler.send(submission(LongContent(2 * MEGABYTE)))
        async with asyncio.timeout(20):
            while not seen or handler.transfers():
                await asyncio.sleep(0.01)
    counts = [found[sent.message_id][0] for found in seen]
    assert counts == sorted(counts)
    assert counts[0] < MEGABYTE
    assert counts[-1] == seen[-1][sent.message_id][1] > 2 * MEGABYTE
