"""Clean histories stay clean: whole, in part, cut anywhere, and in any order of arrival."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.journal.check import check_journal
from oncewire.journal.row import Row
from tests.journal.scenarios import SCENARIOS

names = st.sampled_from(sorted(SCENARIOS))


def _told(rows: list[Row], *, healed: bool) -> list[str]:
    report = check_journal(rows, healed=healed)
    return [str(found) for found in (*report.violations, *report.quarantined)]


@pytest.mark.parametrize("name", sorted(SCENARIOS))
@pytest.mark.parametrize("healed", [True, False])
def test_every_scenario_keeps_every_promise(name: str, healed: bool) -> None:
    assert _told(SCENARIOS[name]().rows, healed=healed) == []


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_one_node_alone_is_not_blamed_for_what_others_would_have_said(name: str) -> None:
    for node in SCENARIOS[name]().nodes.values():
        assert _told(node.rows, healed=True) == []


def test_while_a_run_goes_on_a_hub_in_between_may_not_have_been_read() -> None:
    read = {"acme": 6, "hub": 0, "globex": 3}
    nodes = SCENARIOS["hub"]().nodes.values()
    rows = [row for node in nodes for row in node.rows[: read[node.name]]]
    assert {row.node for row in rows} == {"acme", "globex"}
    assert _told(rows, healed=False) == []


@given(names, st.data())
def test_while_a_run_goes_on_any_cut_of_its_journals_is_clean(
    name: str, data: st.DataObject
) -> None:
    # Nodes are read at different moments, so the cut need not be consistent.
    rows = []
    for node in SCENARIOS[name]().nodes.values():
        rows += node.rows[: data.draw(st.integers(0, len(node.rows)), label=node.name)]
    assert _told(rows, healed=False) == []


@given(names, st.randoms(use_true_random=False))
def test_rows_may_come_in_any_order_and_more_than_once(name: str, random) -> None:  # type: ignore[no-untyped-def]
    rows = SCENARIOS[name]().rows
    rows += random.sample(rows, len(rows) // 2)
    random.shuffle(rows)
    report = check_journal(rows, healed=True)
    assert report.clean
    assert report.rows == len(set(rows))


@given(st.lists(names, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_interleaved_histories_stay_clean(chosen: list[str], random) -> None:  # type: ignore[no-untyped-def]
    # Every message, document and channel gets a name of its own; nodes are shared, and each
    # node's rows are interleaved at random with their own order kept.
    histories: dict[str, list[list[Row]]] = {}
    for index, name in enumerate(chosen):
        for node in SCENARIOS[name]().nodes.values():
            renamed = [_renamed(row, f"h{index}-") for row in node.rows]
            histories.setdefault(node.name, []).append(renamed)
    rows: list[Row] = []
    for queues in histories.values():
        position = 0
        while queues := [queue for queue in queues if queue]:
            position += 1
            rows.append(random.choice(queues).pop(0)._replace(seq=position))
    assert _told(rows, healed=True) == []


def _renamed(row: Row, prefix: str) -> Row:
    return row._replace(
        boot=prefix + row.boot,
        message_id=row.message_id and prefix + row.message_id,
        channel=row.channel and prefix + row.channel,
        detail=row.detail and row.detail.replace('"split_id":"', f'"split_id":"{prefix}'),
    )
