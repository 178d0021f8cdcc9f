"""Two parties' words about one message, compared: who holds which proof."""

import pytest

from oncewire.journal.predicates.context import Context
from oncewire.journal.row import Row
from oncewire.pipeline.reports.reconcile import Compared, Disagreement, compare, statement_of
from oncewire.protocol import notes
from oncewire.protocol.notes import Kind
from tests.journal.histories import World
from tests.journal.scenarios import SCENARIOS


def compared(world: World, message_id: str = "m1", change=lambda rows: rows) -> Compared:
    rows = change([row for row in world.rows if row.message_id == message_id])
    context = Context.gather(world.rows, healed=True)
    ours = [row for row in rows if row.node == "acme"]
    theirs = [row for row in rows if row.node == "globex"]
    return compare(statement_of(ours, context), statement_of(theirs, context))


@pytest.mark.parametrize(
    "name",
    ["plain", "lost_ack", "unknown_then_late_ack", "refused", "unknown", "closed_unanswered"],
)
def test_honest_histories_agree(name: str) -> None:
    assert compared(SCENARIOS[name]()).disagreement is None


def without(node: str, *kinds: Kind):
    wanted = {kind.value for kind in kinds}
    return lambda rows: [
        row for row in rows if row.node != node or (wanted and row.kind not in wanted)
    ]


def test_an_acknowledgement_of_what_the_other_does_not_have() -> None:
    found = compared(SCENARIOS["plain"](), change=without("globex"))
    assert found.disagreement is Disagreement.NOT_RECEIVED
    assert found.sender_says == "delivered"
    assert found.receiver_says == "nothing"
    assert "acknowledgement ack-of-m1-by-globex" in found.sender_proof


def test_unknown_to_the_sender_and_delivered_all_the_same() -> None:
    def forget(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row.kind != Kind.ACKNOWLEDGED]

    found = compared(SCENARIOS["unknown_then_late_ack"](), change=forget)
    assert found.disagreement is Disagreement.DELIVERED
    assert (found.sender_says, found.receiver_says) == ("unknown", "confirmed")
    assert "digest sha-of-m1" in found.receiver_proof
    assert "may take it as delivered" in found.sentence


def test_received_but_never_submitted() -> None:
    found = compared(SCENARIOS["plain"](), change=without("acme"))
    assert found.disagreement is Disagreement.NOT_SUBMITTED


def test_other_content() -> None:
    def alter(rows: list[Row]) -> list[Row]:
        return [
            row._replace(digest="other") if row.node == "globex" and row.digest else row
            for row in rows
        ]

    assert compared(SCENARIOS["plain"](), change=alter).disagreement is Disagreement.CONTENT


def test_an_acknowledgement_that_was_never_given() -> None:
    def forge(rows: list[Row]) -> list[Row]:
        return [
            row._replace(ref_to="forged") if row.kind == Kind.ACKNOWLEDGED else row for row in rows
        ]

    found = compared(SCENARIOS["plain"](), change=forge)
    assert found.disagreement is Disagreement.ACKNOWLEDGEMENT
    assert "forged" in found.sentence


def test_acknowledged_here_and_refused_there() -> None:
    def refuse(rows: list[Row]) -> list[Row]:
        kept = [row for row in rows if row.node == "acme"]
        said = notes.Refused("SecurityFailure").write()
        return [*kept, Row(1, 0, 0, "b", "globex", Kind.REFUSED.value, "m1", detail=said)]

    found = compared(SCENARIOS["plain"](), change=refuse)
    assert found.disagreement is Disagreement.REFUSED
    assert found.receiver_proof == "its refusal with SecurityFailure"


def test_different_numbers() -> None:
    def shift(rows: list[Row]) -> list[Row]:
        return [
            row._replace(sequence_number=(row.sequence_number or 0) + 1)
            if row.node == "globex" and row.sequence_number is not None
            else row
            for row in rows
        ]

    assert compared(SCENARIOS["window"](), "m6", shift).disagreement is Disagreement.NUMBER


def test_rows_that_cannot_be_read_are_told_as_such() -> None:
    def spoil(rows: list[Row]) -> list[Row]:
        return [row._replace(detail="{") if row.kind == Kind.ACKNOWLEDGED else row for row in rows]

    assert compared(SCENARIOS["plain"](), change=spoil).disagreement is Disagreement.UNREADABLE


def test_best_effort_that_arrived_is_no_disagreement() -> None:
    assert compared(SCENARIOS["best_effort"]()).disagreement is None


@pytest.mark.parametrize("name", ["doc", "scan"])
def test_a_document_is_there_when_it_is_joined(name: str) -> None:
    world = SCENARIOS["documents"]()
    assert compared(world, name).disagreement is None

    def joined_otherwise(rows: list[Row]) -> list[Row]:
        return [row._replace(digest="other") if row.kind == Kind.JOINED else row for row in rows]

    if name == "doc":
        found = compared(world, name, joined_otherwise)
        assert found.disagreement is Disagreement.CONTENT
        assert found.receiver_proof == "the document with digest other"
        nothing = compared(world, name, without("globex", Kind.JOINED))
        assert nothing.disagreement is Disagreement.NOT_RECEIVED
