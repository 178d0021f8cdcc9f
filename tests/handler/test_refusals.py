"""Strangers leave a count and a sample behind, not a row each; over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.handler.context import JOURNALED_EVERY, JOURNALED_MAX, KEPT_MAX, WRITE_EVERY, Refusals
from oncewire.message.ids import Party
from oncewire.message.instant import SECOND
from oncewire.store.memory.store import MemoryStore
from oncewire.store.sqlite.store import SqliteStore
from tests.handler.running import free_port, journal, post, serving
from tests.handler.test_http import SYNC, parcel


@pytest.mark.long
async def test_refused_posts_do_not_fill_the_disk(tmp_path: Path) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    extra = SYNC + "[security]\nrequire_signature = true\n"
    claim, stranger = parcel(1), parcel(2, from_party=Party.of("urn:test:mallory"))
    async with serving(tmp_path, "beta", "alpha", ports, extra=extra) as beta:
        before = len(journal(beta))
        for number in range(150):
            # Who signs nothing says he is alpha; another says whatever he likes.
            claimed = claim.body.replace(b"m-1@alpha", b"m-%d@alpha" % (1000 + number))
            assert b"SecurityFailure" in (await post(ports["beta"], claimed, claim.content_type))[2]
            status, _, _ = await post(ports["beta"], stranger.body, stranger.content_type)
            assert status == 200
            status, _, _ = await post(ports["beta"], b"<garbage/>", "text/xml")
            assert status == 500
        # Some of those who name the agreement are journaled, in case it is a partner's mistake.
        assert len(journal(beta)) - before <= JOURNALED_MAX + 10
    store = SqliteStore(tmp_path / "beta.db", node="beta")
    with store.reader() as reader:
        found = {one.code: one for one in reader.refusals()}
    store.close()
    assert found["SecurityFailure"].count == 150
    assert found["Inconsistent"].count == 150
    assert sum(one.count for one in found.values()) == 450
    assert found["SecurityFailure"].message_id == "m-1149@alpha"
    assert found["Inconsistent"].address == "127.0.0.1"


def test_counts_are_written_now_and_then() -> None:
    refusals, store, now = Refusals(), MemoryStore(), 10**15
    assert refusals.due_at is None
    for number in range(3 * KEPT_MAX):
        refusals.count("OtherXml", f"host-{number}", "x" * 1000, "y" * 1000, now)
    assert refusals.due_at == now + WRITE_EVERY
    assert len(refusals.counted) == KEPT_MAX + 1
    refusals.shift(SECOND)
    assert refusals.due_at == now + SECOND + WRITE_EVERY
    with store.transition() as tx:
        refusals.write(tx, now)
    store.commit()
    refusals.keep()
    assert (refusals.due_at, refusals.counted) == (None, ())
    with store.reader() as reader:
        rows = reader.refusals(10_000)
    assert sum(one.count for one in rows) == 3 * KEPT_MAX
    assert max(len(one.problem) + len(one.message_id or "") for one in rows) == 600


def test_the_journal_has_room_again_after_a_while() -> None:
    refusals, now = Refusals(), 10**15
    assert sum(refusals.may_journal(now) for _ in range(1000)) == JOURNALED_MAX
    assert sum(refusals.may_journal(now + 5 * JOURNALED_EVERY) for _ in range(1000)) == 5
    later = now + 10 * JOURNALED_MAX * JOURNALED_EVERY
    assert sum(refusals.may_journal(later) for _ in range(1000)) == JOURNALED_MAX
