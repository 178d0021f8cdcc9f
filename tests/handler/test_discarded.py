"""A message that its receiver throws away because of its number: what its sender can know."""

from __future__ import annotations

import pytest

from oncewire.message.instant import SECOND
from oncewire.protocol import notes
from oncewire.protocol.states import OutgoingState
from oncewire.store.memory.store import MemoryStore
from tests.handler.network import Network

TERMS = (
    '[delivery]\non_exhausted = "fail_message"\nretries = 1\n'
    'timeout = "PT60S"\nretry_interval = "PT60S"\n'
)


@pytest.mark.requirement("SEQ-9", "SEQ-10", "ERR-9")
def test_a_message_whose_number_was_refused_each_time_is_unknown() -> None:
    """Its receiver was restored from an old copy and waits for number 1. It says of each copy
    that it threw it away; a copy that the network still holds would fit once 1 and 2 come."""
    pair = Network.pair("rm-0.78", TERMS)
    pair.send(1)
    pair.send(2)
    pair.take()
    pair.start("beta", store=MemoryStore("beta"))
    sent = pair.send(3)
    pair.pass_time(*[30 * SECOND] * 6)
    assert pair.state(sent.message_id) is OutgoingState.UNKNOWN
    with pair.alpha.context.store.reader() as reader:
        rows = [row for row in reader.journal_of(sent.message_id) if row.kind == "send_failed"]
    said = [notes.SendFailed.read(row.detail) for row in rows]
    assert [one.outcome for one in said] == ["discarded", "discarded"]
    assert "number 3 came while 1 is missing" in (said[0].reason or "")
    assert pair.verify(healed=False).clean
