"""A warning reaches the partner, by whatever goes to him, and never ends a message (ERR-10)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from oncewire.handler.actions import Source, Submission, Warned
from oncewire.handler.delivering.deliver import GivenMessage
from oncewire.journal.history import explain, ladder
from oncewire.message.envelope import Error, ErrorList, Message, MessageKind, Severity
from oncewire.message.form import Form, SyncReplyMode
from oncewire.message.ids import Service
from oncewire.message.instant import SECOND
from oncewire.protocol.states import OutgoingState
from oncewire.wire import codec
from tests.handler.network import Network, response
from tests.handler.running import Clerk, free_port, journal, order, serving
from tests.replacing import replace

BOTH = '[sync]\nmode = "signalsAndResponse"\n'
BY_MAIL = Source("http", can_answer=False)


def borne(policy: str) -> str:
    """Differences between header and agreement are borne, with a warning."""
    return f'[delivery]\nheader_conflict = "{policy}"\n'


def best_effort(message_id: str = "be-1@alpha") -> Submission:
    return Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "New",
        conversation_id="talk",
        message_id=message_id,
        best_effort=True,
    )


def told(message: Message) -> list[tuple[str, str]]:
    errors = message.error_list.errors if message.error_list is not None else ()
    return [(one.code, one.severity.value) for one in errors]


INCONSISTENT = ("Inconsistent", "Warning")
IGNORED = ("NotSupported", "Warning")


# --- no acknowledgement carries it ---------------------------------------------------------------


@pytest.mark.requirement("CPA-10", "ERR-10")
def test_without_an_acknowledgement_the_warning_is_a_message_of_its_own() -> None:
    pair = Network.pair("ms-0.9x", borne("b"))
    pair.alpha.submit(best_effort())
    pair.settle("alpha")
    assert pair.take() == ["be-1@alpha"]
    with pair.beta.context.store.reader() as reader:
        (said,) = [row for row in reader.journal_since(0, 1000) if row.kind == "warning_sent"]
    with pair.alpha.context.store.reader() as reader:
        rows = reader.journal_of("be-1@alpha")
        stored = reader.outgoing("be-1@alpha")
    (warned,) = [row for row in rows if row.kind == "warned"]
    assert (said.message_id, said.ref_to) == ("be-1@alpha", warned.ref_to)
    assert stored is not None
    assert stored.outgoing.state is OutgoingState.SENT
    # Whoever asks is told, in the sentence and in the ladder.
    at = "//Header/QualityOfServiceInfo/@deliverySemantics"
    assert f"Its receiver warned: Inconsistent at {at} (reliable delivery" in explain(rows)
    assert any(step.text.startswith("a warning came") for step in ladder(rows))
    assert not pair.notices
    assert not pair.verify(healed=False).violations


@pytest.mark.requirement("CPA-10", "DUP-5")
def test_a_copy_is_warned_with_the_same_bytes() -> None:
    asking = Network.asking("ms-0.9x", borne("b"))
    parcel = asking.order(best_effort=True)
    asking.arrive(parcel)
    asking.arrive(parcel)
    first, second = asking.left()
    assert first == second
    assert asking.lease() == ["order-1@alpha"]


@pytest.mark.requirement("CPA-11")
def test_where_the_agreement_wins_the_header_is_warned_about() -> None:
    """The agreement asks for acknowledgements, the header for none: c takes the agreement."""
    pair = Network.pair("ms-0.9x", borne("c"))
    pair.alpha.submit(best_effort())
    pair.settle("alpha")
    with pair.alpha.context.store.reader() as reader:
        kinds = [row.kind for row in reader.journal_of("be-1@alpha")]
    assert kinds.count("warned") == 1


@pytest.mark.requirement("CPA-10")
def test_a_warning_that_was_stored_and_never_left_leaves_after_a_crash() -> None:
    asking = Network.asking("ms-0.9x", borne("b"))
    asking.beta.receive(asking.order(best_effort=True), BY_MAIL)
    asking.beta.commit()
    asking.carrying = True
    asking.crash("beta")
    with asking.alpha.context.store.reader() as reader:
        assert [row.kind for row in reader.journal_of("order-1@alpha")].count("warned") == 1


# --- the acknowledgement or the response carries it ----------------------------------------------


@pytest.mark.requirement("CPA-10", "ERR-10", "SYNC-7")
@pytest.mark.parametrize("bundle", ["merged", "concatenated"])
@pytest.mark.parametrize("responds", [True, False])
def test_the_answer_on_the_connection_carries_the_warning(bundle: str, responds: bool) -> None:
    # The header asks for another reply than agreed, and gets it, with a warning.
    agreed = f'[sync]\nmode = "mshSignalsOnly"\nbundle = "{bundle}"\n'
    asking = Network.asking("ms-0.9x", agreed + borne("b"))
    asked = codec.read(asking.order()).message
    header = replace(asked.header, sync_reply=SyncReplyMode.SIGNALS_AND_RESPONSE)
    parcel = codec.write(replace(asked, header=header), Form(dialect=asked.dialect))
    awaited = asking.arrive(parcel).awaited
    assert awaited is not None
    asking.beta.context.state.replying = {(awaited.sender, awaited.message_id)}
    asking.lease()
    asking.confirm(1, *([response(1)] if responds else []))
    reply = asking.reply(awaited)
    *_, last = [one.message for one in codec.read_all(reply)]
    assert (last.kind is MessageKind.NORMAL) is responds
    assert told(last) == [INCONSISTENT]
    asking.hear(1, reply)
    assert asking.state(1) is OutgoingState.DELIVERED
    assert len(asking.rows("warned", at="alpha")) == 1
    assert len(asking.rows("warning_sent", at="beta")) == 1


@pytest.mark.requirement("CPA-10", "SYNC-12")
@pytest.mark.parametrize("in_time", [True, False])
def test_where_neither_comes_back_the_warning_does(in_time: bool) -> None:
    asking = Network.asking("ms-0.9x", BOTH + borne("b"))
    awaited = asking.arrive(asking.order(best_effort=True)).awaited
    assert awaited is not None
    asking.beta.context.state.replying = {(awaited.sender, awaited.message_id)}
    asking.lease()
    if in_time:
        asking.confirm(1)
        answer = asking.reply(awaited)
    else:
        answer = asking.bytes_of(asking.beta.overdue(awaited))
        asking.settle("beta")
    report = codec.read(answer).message
    assert report.kind is MessageKind.ERROR
    assert told(report)[-1] == INCONSISTENT


@pytest.mark.requirement("SYNC-10", "TRN-5")
@pytest.mark.parametrize("by", ["confirm", "submit"])
@pytest.mark.parametrize("profile", ["ebms2", "ms-0.9x"])
def test_the_response_says_that_a_transport_could_not_answer(profile: str, by: str) -> None:
    asking = Network.asking(profile, BOTH, called=by == "confirm")
    answer = asking.arrive(asking.order(), BY_MAIL)
    assert (answer.status, answer.awaited) == (204, None)
    assert asking.lease() == ["order-1@alpha"]
    if by == "submit":
        asking.beta.submit(response(1))
        asking.settle("beta")
    asking.confirm(1, *([response(1)] if by == "confirm" else []))
    ack, answered = asking.left_messages()
    assert (ack.kind, told(ack)) == (MessageKind.ACKNOWLEDGMENT, [IGNORED])
    assert (answered.kind, told(answered)) == (MessageKind.NORMAL, [IGNORED])
    # alpha learns it, and its order is delivered all the same.
    for place in range(2):
        asking.deliver("alpha", asking.left()[place])
    assert asking.state(1) is OutgoingState.DELIVERED
    assert len(asking.rows("warned", at="alpha")) == 2
    (given,) = asking.alpha.hand_over(10, 60 * SECOND)
    assert [(one.code, one.severity) for one in given.warnings] == [
        ("NotSupported", Severity.WARNING)
    ]


@pytest.mark.requirement("SYNC-10")
def test_without_an_acknowledgement_the_response_alone_carries_it() -> None:
    only = '[sync]\nmode = "responseOnly"\n[ack]\nrequest = "never"\n'
    asking = Network.asking("ebms2", only)
    asking.arrive(asking.order(), BY_MAIL)
    asking.lease()
    asking.confirm(1, response(1))
    assert [told(one) for one in asking.left_messages()] == [[IGNORED]]


def test_a_response_to_a_request_without_a_wish_warns_of_nothing() -> None:
    asking = Network.asking("ebms2")
    asking.arrive(asking.order(), BY_MAIL)
    asking.lease()
    asking.confirm(1, response(1))
    assert [told(one) for one in asking.left_messages()] == [[], []]


# --- arriving ------------------------------------------------------------------------------------


def answered_with(asking: Network, *errors: Error) -> Message:
    """A response of beta that carries an ErrorList, as another product may send it."""
    asking.arrive(asking.order())
    asking.lease()
    asking.confirm(1, response(1))
    message = asking.left_messages()[-1]
    return replace(message, acknowledgments=(), error_list=ErrorList(errors))


@pytest.mark.requirement("ERR-10", "RM-16")
@pytest.mark.parametrize("code", ["Inconsistent", "DeliveryFailure"])
def test_a_warning_on_a_response_is_told_and_the_response_counts(code: str) -> None:
    asking = Network.asking("ebms2", '[ack]\nbundling = "piggyback"\n')
    warning = Error(code, Severity.WARNING, "//Service", "an old name")
    message = answered_with(asking, warning)
    asking.alpha.receive(codec.write(message, Form()), Source("http", can_answer=True))
    actions = asking.alpha.commit()
    assert [one for one in actions if isinstance(one, Warned)] == [
        Warned("order-1@alpha", code, "an old name")
    ]
    assert asking.state(1) is OutgoingState.DELIVERED
    (row,) = asking.rows("warned", at="alpha")
    assert (row.message_id, row.ref_to) == ("order-1@alpha", "response-1@beta")
    (taken,) = asking.alpha.hand_over(10, 60 * SECOND)
    assert taken.warnings == (warning,)


@pytest.mark.requirement("ERR-10")
def test_a_stranger_cannot_warn_about_our_messages() -> None:
    asking = Network.asking("ebms2")
    message = answered_with(asking, Error("Unknown", Severity.WARNING))
    header = replace(message.header, ref_to_message_id="nobody@alpha")
    parcel = codec.write(replace(message, header=header), Form())
    asking.alpha.receive(parcel, Source("http", can_answer=True))
    asking.alpha.commit()
    assert asking.rows("warned", at="alpha") == []


@pytest.mark.requirement("SYNC-10", "ERR-10")
async def test_a_running_handler_says_what_its_partner_warns_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports = {"alpha": free_port(), "beta": free_port()}
    clerk = Clerk()
    caplog.set_level(logging.WARNING, "oncewire.handler")
    async with (
        serving(tmp_path, "beta", "alpha", ports, extra=BOTH, application=clerk) as beta,
        serving(tmp_path, "alpha", "beta", ports, extra=BOTH) as alpha,
    ):
        door = beta._door.take

        async def by_mail(delivery):  # type: ignore[no-untyped-def]
            return await door(replace(delivery, can_answer=False))

        await beta.transports["http"].stop()
        await beta.transports["http"].start(by_mail)
        sent = await alpha.send(order(1))
        assert await alpha.wait(sent.message_id, 20) is OutgoingState.DELIVERED
        taken: list[GivenMessage] = []
        while not taken:
            taken = await alpha.take()
        assert [one.code for one in taken[0].warnings] == ["NotSupported"]
        await alpha.confirm(taken[0].sender, taken[0].message_id)
        assert [row.message_id for row in journal(alpha) if row.kind == "warned"] == (
            [sent.message_id] * 2
        )
    assert "a partner warns about a message" in caplog.text
