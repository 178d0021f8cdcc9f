"""What strangers sent and nobody took: counted, sampled, and never more than a small table."""

from __future__ import annotations

from oncewire.message.instant import SECOND
from oncewire.store.contract import Store
from oncewire.store.records import REFUSALS_KEPT, REFUSALS_MAX, Refusal


def count(store: Store, *refusals: Refusal) -> None:
    with store.transition() as tx:
        tx.count_refusals(refusals)
    store.commit()


def known(store: Store, limit: int = 10_000) -> list[Refusal]:
    with store.reader() as reader:
        return reader.refusals(limit)


def test_refusals_of_one_kind_and_place_are_one_row(store: Store) -> None:
    first = Refusal("OtherXml", "192.0.2.1", 2, 100, 200, "not XML", None)
    other = Refusal("OtherXml", "192.0.2.2", 1, 150, 150, "not XML", "m-1")
    count(store, first, other)
    count(store, Refusal("OtherXml", "192.0.2.1", 3, 300, 400, "a DOCTYPE", "m-2"))
    assert known(store) == [
        Refusal("OtherXml", "192.0.2.1", 5, 100, 400, "a DOCTYPE", "m-2"),
        other,
    ]
    assert known(store, 1) == known(store)[:1]


def test_it_is_undone_with_its_transition(store: Store) -> None:
    try:
        with store.transition() as tx:
            tx.count_refusals([Refusal("OtherXml", "a", 1, 1, 1)])
            raise KeyError
    except KeyError:
        pass
    assert known(store) == []


def test_however_many_addresses_the_table_stays_small(store: Store) -> None:
    for base in range(0, 3 * REFUSALS_MAX, 500):
        count(
            store,
            *(Refusal("OtherXml", f"host-{base + n}", 1, 10, 10, "no") for n in range(500)),
            Refusal("MimeProblem", f"host-{base}", 1, 10, 10, "no"),
        )
    rows = known(store)
    assert len(rows) <= REFUSALS_MAX + 2
    assert sum(one.count for one in rows) == 3 * REFUSALS_MAX + 6
    together = {one.code: one.count for one in rows if not one.address}
    assert together["OtherXml"] > REFUSALS_MAX
    # A place that has its row keeps it.
    count(store, Refusal("OtherXml", "host-0", 1, 20, 20, "no"))
    assert known(store, 1) == [Refusal("OtherXml", "host-0", 2, 10, 20, "no")]


def test_what_is_long_ago_is_forgotten(store: Store) -> None:
    count(store, Refusal("OtherXml", "a", 1, 10, 10), Refusal("OtherXml", "b", 1, SECOND, SECOND))
    count(store, Refusal("OtherXml", "c", 1, 11, 11 + REFUSALS_KEPT))
    assert [one.address for one in known(store)] == ["c", "b"]
