"""Two parties with messages in every dialect, as their stores are kept from an earlier version.

`python -m tests.store.kept_store FOLDER` makes the two files under `kept/` anew. They are made
again only when the oldest version that must still be opened changes: what they show is that this
version reads what that one wrote.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import apsw

from oncewire.agreement.agreement import Agreements
from oncewire.message.envelope import Payload
from oncewire.message.instant import HOUR
from oncewire.store.sqlite.store import SqliteStore
from tests.handler.network import START, Network, TestWorld, agreement_of, agreement_text

SPLIT = "[payload]\nmax_size = 1000\n"
ONCE = '[delivery]\nretries = 1\ntimeout = "PT1M"\nretry_interval = "PT1M"\n'
WAYS = {
    "ebms2": ("ebms2", ""),
    "typed": ("ms-0.9x-typed", ""),
    "parts": ("ms-0.9x", SPLIT),
    "window": ("window", ""),
    "ordered": ("ebms2", ONCE + "[sequence]\nordered = true\n"),
    "single": ("rm-0.78", ""),
}
"""The agreements, by their CPAId: profile, and what is said beyond it."""

NAMES = ("alpha", "beta")
DOCUMENT = bytes(range(256)) * 10


class Partners(Network):
    """alpha and beta with an agreement for each of `WAYS`; `folder` has their stores."""

    def __init__(self, folder: Path, *, time: int = START, ids: int = 0) -> None:
        def clock(name: str) -> TestWorld:
            world = TestWorld(name, time)
            world.ids = ids
            return world

        agreements = {
            own: Agreements(
                agreement_of(agreement_text(own, other, profile, extra).replace("alpha-beta", way))
                for way, (profile, extra) in WAYS.items()
            )
            for own, other in (NAMES, NAMES[::-1])
        }
        super().__init__(
            agreements,
            clock=clock,
            store=lambda name: SqliteStore(folder / f"{name}.db", node=name),
        )

    def order(self, way: str, name: str, data: bytes = b"an order", talk: str = "talk") -> None:
        """alpha's application hands in a document under one of the agreements."""
        payload = Payload.of("order", "text/plain", data)
        self.send(payloads=(payload,), cpa_id=way, conversation_id=talk, message_id=f"{name}@alpha")


def live(folder: Path) -> Partners:
    """Messages of each dialect in every state, a document in parts, and a stopped stream."""
    pair = Partners(folder)
    for way in WAYS:
        pair.order(way, f"{way}-1")
        pair.order(way, f"{way}-2")
    pair.order("parts", "parts-whole", DOCUMENT)
    pair.take()
    for way in WAYS:
        pair.order(way, f"{way}-3")
    pair.beta.hand_over(1, HOUR)
    pair.settle("beta")
    pair.lose_request = lambda post: True
    pair.order("ordered", "ordered-lost", talk="stopped")
    pair.order("ordered", "ordered-behind", talk="stopped")
    for _ in range(3):
        pair.pass_time()
    pair.order("ebms2", "ebms2-lost")
    pair.order("parts", "parts-cut", DOCUMENT)
    return pair


def main(folder: Path) -> None:
    """Make the kept files, in this folder."""
    live(folder).close()
    for name in NAMES:
        path = folder / f"{name}.db"
        connection = apsw.Connection(str(path))
        connection.pragma("journal_mode", "delete")
        connection.execute("VACUUM")
        connection.close()
        kept = Path(__file__).with_name("kept") / f"{name}.db.gz"
        kept.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        sys.stdout.write(f"{kept.name}: {kept.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
