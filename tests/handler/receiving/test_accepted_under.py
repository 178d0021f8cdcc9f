"""A message keeps the terms it was accepted under: its copies, its answers and its resends do.

Agreements end, change and disappear while messages are under way. Whatever is new is judged by
today's agreement; what is known is not judged again. A revoked certificate is the exception.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import structs

from oncewire.agreement.agreement import Agreement, Agreements
from oncewire.agreement.toml import read_toml
from oncewire.errors import InvalidValue, NotAllowed, NotHere
from oncewire.handler.actions import Source, Submission
from oncewire.handler.context import Keys
from oncewire.handler.encryption import whole_parcel
from oncewire.message.envelope import Message, MessageKind, Payload
from oncewire.message.ids import Service
from oncewire.message.instant import DAY, MINUTE, SECOND, format_instant
from oncewire.protocol.states import IncomingState, OutgoingState
from oncewire.wire import codec
from oncewire.wire.parcel import Parcel
from tests.handler.network import START, Network, Stores, agreement_text, options
from tests.handler.test_signed import pem
from tests.wire.security.keys import Identity, alpha, issue, mallory

DER = Encoding.DER
END = f"end = {format_instant(START)}\n"
SLOW = '[delivery]\ntimeout = "PT60S"\nretry_interval = "PT60S"\nretries = 3\n'


def agree(own: str, profile: str = "ebms2", extra: str = SLOW, top: str = "") -> Agreement:
    partner = "beta" if own == "alpha" else "alpha"
    return read_toml(top + agreement_text(own, partner, profile, extra))


def change(pair: Network, name: str, *agreements: Agreement, keys: Keys | None = None) -> None:
    """The handler is started again with other agreements over the same store."""
    known = keys or pair.engines[name].context.keys
    if known is not None:
        pair.keys = {**pair.keys, name: known}
    # An answer that is owed leaves again at a start; lost too, only a copy can bring it.
    usual, pair.lose_answer = pair.lose_answer, lambda _: True
    pair.start(name, Agreements(agreements))
    pair.lose_answer = usual


def ended(own: str, profile: str = "ebms2", extra: str = SLOW) -> Agreement:
    return agree(own, profile, extra, END)


def listed(own: str) -> Agreement:
    """Another service is all that may be used from now on."""
    text = agreement_text(own, "beta" if own == "alpha" else "alpha", "ebms2", SLOW)
    actions = '[[actions]]\nservice = "urn:test:bills"\naction = "Pay"\n'
    return read_toml(f"listed_only = true\n{text}{actions}")


def other(own: str) -> Agreement:
    """An agreement with somebody else: the one with the partner is gone."""
    text = agreement_text(own, "gamma", "ebms2", SLOW)
    return read_toml(text.replace('"alpha-beta"', '"somebody-else"'))


CHANGES: dict[str, Callable[[str], Agreement]] = {
    "ended": ended,
    "gone": other,
    "listed": listed,
    "no receipts": lambda own: agree(own, extra=SLOW + 'receipt_provided = "None"\n'),
    "another dialect": lambda own: agree(own, "ms-0.9x"),
    "signatures": lambda own: agree(own, extra=SLOW + "[security]\nrequire_signature = true\n"),
    "renamed": lambda own: read_toml(
        agreement_text(own, "beta" if own == "alpha" else "alpha", "ebms2", SLOW).replace(
            '"alpha-beta"', '"alpha-beta-2"'
        )
    ),
}


def pass_minutes(pair: Network, minutes: int) -> None:
    pair.pass_time(*[MINUTE] * minutes)


def told(pair: Network, since: int) -> list[Message]:
    """What beta said since then."""
    found = []
    for body in pair.answers[since:]:
        multipart = body.startswith(b"--")
        boundary = body.split(b"\r\n", 1)[0][2:].decode() if multipart else ""
        kind = f'multipart/related; type="text/xml"; boundary="{boundary}"'
        found.append(codec.read(Parcel(kind if multipart else "text/xml", body)).message)
    return found


# --- copies ------------------------------------------------------------------------------------


@pytest.mark.requirement("RM-17", "DUP-3")
@pytest.mark.parametrize("change_", CHANGES.values(), ids=CHANGES.keys())
def test_a_copy_of_what_was_delivered_gets_its_answer_again(
    change_: Callable[[str], Agreement],
) -> None:
    pair = Network.pair("ebms2", SLOW, lose_answer=lambda count: count == 1)
    sent = pair.send()
    assert pair.take() == [sent.message_id]
    first = pair.answers[0]
    change(pair, "beta", change_("beta"))
    pass_minutes(pair, 3)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.notices == []
    assert pair.answers[-1] == first, "the stored bytes, whatever would be answered today"
    assert pair.take() == []
    assert pair.verify().clean


@pytest.mark.requirement("RM-17")
@pytest.mark.parametrize("change_", CHANGES.values(), ids=CHANGES.keys())
def test_where_nobody_stops_repeats_one_that_is_not_wanted_any_more_is_a_copy_still(
    change_: Callable[[str], Agreement],
) -> None:
    passing = f'{SLOW}[duplicate]\nelimination = "never"\n'
    pair = Network.pair("ebms2", passing, lose_answer=lambda count: count == 1)
    sent = pair.send()
    assert pair.take() == [sent.message_id]
    change(pair, "beta", change_("beta"))
    pass_minutes(pair, 3)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.notices == []
    assert pair.verify().clean


@pytest.mark.requirement("RM-17")
def test_where_nobody_stops_repeats_a_number_that_is_past_refuses_none_that_arrived() -> None:
    passing = f'{SLOW}[duplicate]\nelimination = "never"\n[sequence]\nnumbered = true\n'
    passing += 'scope = "pair"\n[wire]\nextensions = ["hop_sequence", "routing"]\n'
    pair = Network.pair("ebms2", passing, lose_answer=lambda count: count == 2)
    pair.send(1)
    sent = pair.send(2)
    pair.send(3)
    taken = [message_id for _ in range(3) for message_id in pair.take()]
    assert taken == ["order-1@alpha", sent.message_id, "order-3@alpha"]
    pass_minutes(pair, 3)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.notices == []
    assert pair.verify().clean


@pytest.mark.parametrize("profile", ["window", "rm-0.78", "ms-0.9x"])
@pytest.mark.parametrize(("top", "more"), [(END, ""), ("", 'receipt_provided = "None"\n')])
def test_a_copy_in_the_drafts_own_dialects(profile: str, top: str, more: str) -> None:
    pair = Network.pair(profile, SLOW, lose_answer=lambda count: count == 1)
    sent = pair.send()
    assert pair.take() == [sent.message_id]
    change(pair, "beta", agree("beta", profile, SLOW + more, top))
    pass_minutes(pair, 3)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.verify().clean


def test_what_is_new_is_judged_by_todays_agreement() -> None:
    pair = Network.pair("ebms2", SLOW)
    pair.send(1)
    change(pair, "beta", ended("beta"))
    pair.pass_time(2 * SECOND)
    late = pair.send(2)
    assert pair.state(late.message_id) is OutgoingState.NOT_DELIVERED
    assert pair.take() == ["order-1@alpha"]


def test_the_agreement_is_found_in_the_store_when_its_file_is_gone(on_disk: Stores) -> None:
    pair = Network.pair("ebms2", SLOW, lose_answer=lambda count: True, store=on_disk)
    sent = pair.send()
    assert pair.take() == [sent.message_id]
    change(pair, "beta", other("beta"))
    change(pair, "alpha", other("alpha"))
    pair.lose_answer = lambda count: False
    # The resend goes to the address it had, and what comes back is believed.
    pass_minutes(pair, 3)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.verify().clean
    pair.close()


def test_a_copy_of_what_retention_removed_is_known_after_the_end() -> None:
    keep = SLOW + 'persist_duration = "PT10M"\n'
    pair = Network.pair("ebms2", keep)
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    assert pair.take() == [sent.message_id]
    pair.pass_time(DAY)
    pair.beta.context.state.sweep_due_at = 0
    pair.pass_time(SECOND)
    with pair.beta.context.store.transition() as tx:
        assert [one.sender for one in tx.removed(sent.message_id)] == ["urn:test:alpha"]
        assert tx.incoming("urn:test:alpha", sent.message_id) is None
    change(pair, "beta", ended("beta", extra=keep))
    said = len(pair.answers)
    pair.deliver("beta", copy)
    assert [one.kind for one in told(pair, said)] == [MessageKind.ACKNOWLEDGMENT]
    assert pair.take() == []


def test_nothing_new_is_submitted_after_the_end() -> None:
    pair = Network.pair("ebms2", SLOW)
    sent = pair.send(1)
    change(pair, "alpha", ended("alpha"))
    with pytest.raises(NotAllowed, match="agreement alpha-beta ended at"):
        pair.send(2)
    # What was accepted before is known, and what answers a message is owed to it.
    assert pair.send(1).repeated
    assert pair.send(3, ref_to_message_id=sent.message_id).message_id == "order-3@alpha"


def test_where_repeats_pass_a_copy_is_new_and_needs_todays_agreement() -> None:
    loose = '[duplicate]\nelimination = "never"\n[best_effort]\nfilter = false\n'
    never = loose + '[ack]\nrequest = "never"\n[delivery]\nreliable = false\n'
    pair = Network.pair("ebms2", never)
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    pair.deliver("beta", copy)
    assert pair.take() == [sent.message_id, sent.message_id]
    change(pair, "beta", ended("beta", extra=never))
    pair.pass_time(2 * SECOND)
    pair.deliver("beta", copy)
    assert pair.take() == []
    # And it is not refused: one of them has arrived.
    assert pair.kinds("beta").count("refused") == 0
    assert pair.kinds("beta").count("duplicate") == 1


def test_what_was_accepted_is_handed_over_as_it_was_agreed() -> None:
    pair = Network.pair("ebms2", SLOW)
    pair.send()
    change(pair, "beta", listed("beta"))
    (stored,) = pair.beta.hand_over(10, 30 * SECOND)
    pair.settle("beta")
    assert stored.payloads[0].data == b"order 1"


@pytest.mark.requirement("RM-17", "SW-10")
def test_what_is_held_for_us_is_ours_whatever_became_of_the_agreement() -> None:
    pair = Network.pair("window", SLOW)
    pair.send(1)
    pair.lose_request = lambda post: True
    pair.send(2)
    pair.lose_request = lambda post: False
    pair.send(3)
    assert pair.take() == ["order-1@alpha"]
    # The party itself is gone from the agreements.
    change(pair, "beta")
    for _ in range(2):
        pair.beta.context.world.time += 30 * DAY  # type: ignore[attr-defined]
        pair.beta.tick()
        pair.settle("beta")
    assert pair.take() == ["order-3@alpha"]
    assert pair.incidents("beta") == []


def test_a_copy_that_was_damaged_on_its_way_takes_nothing_back() -> None:
    pair = Network.pair("ebms2", SLOW, lose_answer=lambda count: count == 1)
    sent = pair.send()
    whole = pair.sent(sent.message_id)
    payload = whole.body.index(b"\r\n--", whole.body.index(b"</SOAP:Envelope>"))
    damaged = Parcel(whole.content_type, whole.body[:payload] + whole.body[payload : payload + 60])
    with pytest.raises(codec.ReadFault):
        codec.read(damaged)
    said = len(pair.answers)
    assert pair.deliver("beta", damaged).status == 400
    assert told(pair, said) == []
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    # What was never accepted is answered with what is wrong about it.
    stranger = Parcel(damaged.content_type, damaged.body.replace(b"order-1@", b"order-2@"))
    pair.deliver("beta", stranger)
    assert [one.kind for one in told(pair, said)] == [MessageKind.ERROR]


def test_a_damaged_copy_of_what_was_refused_is_answered_like_any_other() -> None:
    pair = Network.pair("ebms2", SLOW, lose_answer=lambda count: True)
    pair.beta.context.world.time += DAY  # type: ignore[attr-defined]
    sent = pair.send(time_to_live=2 * MINUTE)
    assert "refused" in pair.kinds("beta")
    whole = pair.sent(sent.message_id)
    payload = whole.body.index(b"\r\n--", whole.body.index(b"</SOAP:Envelope>"))
    said = len(pair.answers)
    pair.deliver("beta", Parcel(whole.content_type, whole.body[: payload + 60]))
    assert [one.kind for one in told(pair, said)] == [MessageKind.ERROR]


# --- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("change_", CHANGES.values(), ids=CHANGES.keys())
def test_an_acknowledgement_is_believed_under_the_terms_of_what_it_acknowledges(
    change_: Callable[[str], Agreement],
) -> None:
    pair = Network.pair("ebms2", SLOW, lose_answer=lambda count: count == 1)
    sent = pair.send()
    pair.take()
    change(pair, "alpha", change_("alpha"))
    pass_minutes(pair, 3)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.notices == []
    assert pair.verify().clean


def test_an_error_about_what_was_sent_before_the_end_is_heard() -> None:
    pair = Network.pair("ebms2", SLOW, lose_answer=lambda count: count == 1)
    pair.beta.context.world.time += DAY  # type: ignore[attr-defined]
    sent = pair.send(time_to_live=1 * MINUTE * 2)
    assert "refused" in pair.kinds("beta")
    change(pair, "alpha", ended("alpha"))
    pass_minutes(pair, 1)
    assert pair.state(sent.message_id) is OutgoingState.NOT_DELIVERED
    assert "Time" in pair.notices[0].reason or "TimeToLive" in pair.notices[0].reason


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_question_about_what_was_sent_before_the_end_is_answered(name: str) -> None:
    pair = Network.pair("ebms2", SLOW, lose_answer=lambda count: count == 1)
    sent = pair.send()
    pair.take()
    change(pair, name, ended(name) if name == "beta" else other(name))
    pair.pass_time(2 * SECOND)
    pair.alpha.ask_status(sent.message_id)
    pair.settle("alpha")
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED


def test_a_ping_is_nobodys_answer() -> None:
    pair = Network.pair("ebms2", SLOW)
    pair.send()
    change(pair, "beta", ended("beta"))
    pair.pass_time(2 * SECOND)
    pair.alpha.ping("alpha-beta")
    pair.settle("alpha")
    assert pair.ponged == []


def test_an_acknowledgement_counts_on_a_response_that_comes_too_late() -> None:
    sync = SLOW + '[sync]\nmode = "signalsAndResponse"\n'
    pair = Network.pair("ebms2", sync)
    pair.beta.context.application_called = True
    pair.carrying = False
    request = pair.send()
    pair.carrying = True
    pair.deliver("beta", pair.sent())
    pair.hear(pair.posts[0], None)
    (taken,) = pair.beta.hand_over(1, 30 * SECOND)
    pair.settle("beta")
    answer = Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "Done",
        (Payload.of("r", "text/plain", b"done"),),
        ref_to_message_id=request.message_id,
        message_id="done-1@beta",
    )
    pair.beta.context.state.replying = {(taken.sender, request.message_id)}
    pair.beta.confirm(taken.sender, request.message_id, [answer])
    # It is not committed yet, so no reader sees it.
    with pair.beta.context.store.transition() as tx:
        kept = tx.outgoing_parcel("done-1@beta")
    assert kept is not None
    parcel = whole_parcel(pair.beta.context, kept)
    assert codec.read(parcel).message.acknowledgments
    # It refers to another message than it acknowledges: what is refused answers nothing.
    pair.lose_request = lambda post: True
    beside = pair.send(2).message_id
    named = f"<eb:RefToMessageId>{request.message_id}</eb:RefToMessageId></eb:MessageData>"
    assert parcel.body.count(named.encode()) == 1
    other_one = named.replace(request.message_id, beside)
    parcel = Parcel(parcel.content_type, parcel.body.replace(named.encode(), other_one.encode()))
    change(pair, "alpha", ended("alpha", extra=sync))
    pair.alpha.context.world.time += 2 * SECOND  # type: ignore[attr-defined]
    pair.deliver("alpha", parcel)
    assert pair.state(request.message_id) is OutgoingState.DELIVERED
    assert pair.state(beside) is OutgoingState.OUTSTANDING
    with pair.alpha.context.store.transition() as tx:
        assert tx.incoming_by_id("done-1@beta") == [], "the response itself is new"


# --- what is under way -------------------------------------------------------------------------


def test_resends_go_on_with_their_bytes_to_their_address() -> None:
    pair = Network.pair("ebms2", SLOW, lose_request=lambda post: post.attempt == 1)
    sent = pair.send()
    before = pair.sent(sent.message_id)
    change(pair, "alpha", other("alpha"))
    pass_minutes(pair, 3)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.sent(sent.message_id) == before
    assert pair.take() == [sent.message_id]


def test_a_partner_that_moved_is_sent_to_where_it_is_now() -> None:
    pair = Network.pair("ebms2", SLOW, lose_request=lambda post: post.attempt == 1)
    sent = pair.send()
    moved = read_toml(
        agreement_text("alpha", "beta", "ebms2", SLOW).replace("//beta/msh", "//nowhere/msh")
    )
    node = pair.alpha.context
    change(pair, "alpha", moved)
    node.world.time += MINUTE  # type: ignore[attr-defined]
    pair.alpha.tick()
    posts = [action.address for action in pair.alpha.commit() if hasattr(action, "attempt")]
    assert posts == ["http://nowhere/msh"]
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING


# --- proof ---------------------------------------------------------------------------------------


def signed(
    own: str, partner: Identity, *more: Identity, revoked: tuple[Identity, ...] = (), top: str = ""
) -> Agreement:
    pins = [pem(one.certificate).replace("\n", "\\n") for one in (partner, *more)]
    listed_ = ", ".join(f'"{one}"' for one in pins)
    extra = f"{SLOW}[security]\nsign = true\nrequire_signature = true\n"
    extra += f"partner_certificates = [{listed_}]\n"
    gone = ", ".join('"' + pem(one.certificate).replace("\n", "\\n") + '"' for one in revoked)
    extra += f"revoked = [{gone}]\n" if revoked else ""
    return agree(own, extra=extra, top=top)


A, B = alpha("rsa"), mallory("rsa")


def signed_pair(**luck: Callable[[int], bool]) -> Network:
    """alpha signs with A and beta with B; each pins the other's."""
    pair = Network.pair("ebms2", SLOW, **luck)  # type: ignore[arg-type]
    change(pair, "alpha", signed("alpha", B), keys=Keys(A.certificate, A.key))
    change(pair, "beta", signed("beta", A), keys=Keys(B.certificate, B.key))
    return pair


NEW = issue("new", "rsa")


@pytest.mark.parametrize("top", ["", END])
def test_a_copy_proves_itself_with_the_key_of_then(top: str) -> None:
    pair = signed_pair(lose_answer=lambda count: count == 1)
    sent = pair.send()
    assert pair.take() == [sent.message_id]
    change(pair, "beta", signed("beta", NEW, top=top))
    pass_minutes(pair, 2)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    assert pair.verify().clean


def test_a_certificate_that_expired_since_was_good_then() -> None:
    # Valid for a day that ends half a minute after the first message.
    start = datetime.fromtimestamp(START / SECOND + 30, UTC) - timedelta(days=1)
    brief = issue("brief", "rsa", start=start, days=1)
    pair = signed_pair(lose_answer=lambda count: count == 1)
    change(pair, "alpha", signed("alpha", B), keys=Keys(brief.certificate, brief.key))
    change(pair, "beta", signed("beta", brief))
    sent = pair.send()
    assert pair.take() == [sent.message_id]
    pass_minutes(pair, 2)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED
    late = pair.send(2)
    assert pair.take() == []
    # Whoever signs with it is not known any more: what he is told ends nothing.
    assert pair.state(late.message_id) is OutgoingState.OUTSTANDING
    assert "ignored" in pair.kinds("alpha")


def test_a_revoked_certificate_proves_nothing_at_once() -> None:
    pair = signed_pair(lose_answer=lambda count: count == 1)
    sent = pair.send()
    assert pair.take() == [sent.message_id]
    change(pair, "beta", signed("beta", NEW, revoked=(A,)))
    said = len(pair.answers)
    pair.pass_time(MINUTE)
    assert told(pair, said) == [], "neither its answer nor an error that would be believed"
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    assert "refused" in pair.kinds("beta")
    # And so for what is new, even where it is still pinned.
    change(pair, "beta", signed("beta", A, revoked=(A,)))
    pair.send(2)
    assert pair.take() == []


def test_an_acknowledgement_under_a_revoked_certificate_settles_nothing() -> None:
    pair = signed_pair(lose_answer=lambda count: count == 1)
    sent = pair.send()
    change(pair, "alpha", signed("alpha", NEW, revoked=(B,)))
    pass_minutes(pair, 2)
    assert pair.state(sent.message_id) is OutgoingState.OUTSTANDING
    change(pair, "alpha", signed("alpha", NEW))
    pass_minutes(pair, 1)
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED


def forged(pair: Network, message_id: str, how: str) -> Parcel:
    """A copy of a known message by somebody who is not its sender."""
    parcel = pair.sent(message_id)
    if how == "unsigned":
        start = parcel.body.index(b"<ds:Signature")
        end = parcel.body.index(b"</ds:Signature>") + len(b"</ds:Signature>")
        return Parcel(parcel.content_type, parcel.body[:start] + parcel.body[end:])
    if how == "changed":
        return Parcel(parcel.content_type, parcel.body.replace(b"order 1", b"order 2"))
    thief = signed_pair(lose_request=lambda post: True)
    change(thief, "alpha", signed("alpha", B), keys=Keys(NEW.certificate, NEW.key))
    sent = thief.send()
    assert sent.message_id == message_id
    return thief.sent(message_id)


@pytest.mark.parametrize("how", ["unsigned", "changed", "another key"])
@pytest.mark.parametrize("today", ["same", "unsigned", "ended", "gone", "their key"])
def test_who_cannot_prove_that_he_repeats_is_told_nothing(how: str, today: str) -> None:
    """Not the stored answer, not that the content differs, and no error to be believed."""
    pair = signed_pair()
    sent = pair.send()
    forgery = forged(pair, sent.message_id, how)
    assert pair.take() == [sent.message_id]
    changed = {
        "same": signed("beta", A),
        "unsigned": agree("beta"),
        "ended": signed("beta", A, top=END),
        "gone": other("beta"),
        "their key": signed("beta", NEW),
    }
    change(pair, "beta", changed[today])
    pair.beta.context.world.time += 2 * SECOND  # type: ignore[attr-defined]
    said = len(pair.answers)
    answer = pair.beta.receive(forgery, Source("http", can_answer=True))
    pair.settle("beta")
    assert answer.parcel is None
    assert told(pair, said) == []
    assert pair.take() == []
    assert pair.kinds("beta").count("duplicate") == 0
    assert pair.state(sent.message_id) is OutgoingState.DELIVERED


@pytest.mark.requirement("DUP-4")
@pytest.mark.parametrize("today", ["same", "ended"])
def test_another_content_under_a_known_id_is_a_conflict_if_its_sender_proves_it(today: str) -> None:
    pair = signed_pair()
    sent = pair.send()
    double = signed_pair(lose_request=lambda post: True)
    double.send(
        payloads=(Payload.of("order-1", "text/plain", b"order 9"),), message_id=sent.message_id
    )
    change(pair, "beta", signed("beta", A, top=END if today == "ended" else ""))
    pair.beta.context.world.time += 2 * SECOND  # type: ignore[attr-defined]
    said = len(pair.answers)
    pair.deliver("beta", double.sent(sent.message_id))
    (report,) = told(pair, said)
    assert report.error_list is not None
    assert report.error_list.errors[0].code == "Inconsistent"
    assert pair.take() == [sent.message_id]


# --- a connection that is bound ----------------------------------------------------------------


def test_a_copy_may_come_over_a_connection_of_today() -> None:
    def bound(own: str, *certificates: str, revoked: str = "") -> Agreement:
        text = agreement_text(own, "alpha", "ebms2", SLOW + revoked)
        names = ", ".join(f'"{one}"' for one in certificates)
        return read_toml(
            text.replace("[partner]\n", f"[partner]\nclient_certificates = [{names}]\n")
        )

    def brought(by: Identity) -> str:
        source = Source("http", can_answer=True, certificate=by.certificate.public_bytes(DER))
        pair.beta.receive(copy, source)
        pair.settle("beta")
        return pair.kinds("beta")[-1]

    def mark(one: Identity) -> str:
        return one.certificate.fingerprint(SHA256()).hex()

    first, second = issue("first", "rsa"), issue("second", "rsa")
    pair = Network.pair("ebms2", SLOW, lose_request=lambda post: True)
    change(pair, "beta", bound("beta", mark(first)))
    sent = pair.send()
    copy = pair.sent(sent.message_id)
    assert brought(second) == "refused"
    assert brought(first) != "refused"
    change(pair, "beta", bound("beta", mark(second)))
    assert brought(second) == "duplicate"
    assert brought(first) == "duplicate"
    assert brought(NEW) == "refused"
    gone = "[security]\nrevoked = ['''" + pem(first.certificate) + "''']\n"
    change(pair, "beta", bound("beta", mark(second), revoked=gone))
    assert brought(second) == "duplicate"
    assert brought(first) == "refused"


# --- submissions -------------------------------------------------------------------------------


def order(text: bytes = b"pay 100 EUR to Anna", **changes: object) -> Submission:
    plain = Submission(
        "alpha-beta",
        Service("urn:test:orders"),
        "New",
        (Payload.of("o", "text/plain", text),),
        conversation_id="talk",
        message_id="order-1@alpha",
    )
    return structs.replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", ["ebms2", "window", "rm-0.78"])
def test_a_repeated_submission_is_accepted_and_sent_once(profile: str) -> None:
    pair = Network.pair(profile, SLOW)
    first = pair.alpha.submit(order(conversation_id=None))
    pair.settle("alpha")
    pair.pass_time(MINUTE)
    for again in (order(conversation_id=None), order(conversation_id=first.conversation_id)):
        repeated = pair.alpha.submit(again)
        assert repeated == replace(first, repeated=True)
    pair.settle("alpha")
    assert pair.take() == [first.message_id]
    assert pair.kinds("alpha").count("submitted") == 1


def test_a_submission_that_waits_for_its_number_can_be_repeated() -> None:
    pair = Network.pair("rm-0.78", SLOW, lose_request=lambda post: True)
    pair.send(7)
    first = pair.alpha.submit(order(time_to_live=DAY))
    pair.settle("alpha")
    assert pair.state(first.message_id) is OutgoingState.WAITING
    pair.pass_time(SECOND)
    assert pair.alpha.submit(order(time_to_live=DAY)).repeated
    with pytest.raises(InvalidValue):
        pair.alpha.submit(order(time_to_live=2 * DAY))


@pytest.mark.parametrize(
    "another",
    [
        order(b"pay 999 EUR to Bert"),
        order(action="Cancel"),
        order(service=Service("urn:test:bills")),
        order(conversation_id="another"),
        order(ref_to_message_id="order-0@beta"),
        order(time_to_live=DAY),
        order(payloads=()),
        order(payloads=(Payload.of("o", "text/csv", b"pay 100 EUR to Anna"),)),
        order(cpa_id="alpha-gamma"),
    ],
    ids=["content", "action", "service", "talk", "ref", "life", "none", "type", "agreement"],
)
def test_another_message_under_a_used_id_is_refused(another: Submission) -> None:
    pair = Network.pair("ebms2", SLOW)
    first = pair.alpha.submit(order())
    pair.settle("alpha")
    with pytest.raises(InvalidValue, match="used for another message") as caught:
        pair.alpha.submit(another)
    assert "an id of its own" in caught.value.remedy
    pair.settle("alpha")
    assert pair.take() == [first.message_id]


@pytest.mark.parametrize("change_", CHANGES.values(), ids=CHANGES.keys())
def test_a_submission_can_be_repeated_after_its_agreement_changed(
    change_: Callable[[str], Agreement],
) -> None:
    pair = Network.pair("ebms2", SLOW)
    pair.alpha.submit(order())
    pair.settle("alpha")
    change(pair, "alpha", change_("alpha"))
    assert pair.alpha.submit(order()).repeated
    with pytest.raises(InvalidValue, match="used for another message"):
        pair.alpha.submit(order(b"pay 999 EUR to Bert"))
    if change_ is other:
        with pytest.raises(NotHere):
            pair.alpha.submit(order(message_id="order-2@alpha"))


def test_an_encrypted_submission_is_compared_by_what_was_given() -> None:
    pair = Network.pair("ebms2", SLOW)
    for own, partner, key in (("alpha", B, A), ("beta", A, B)):
        pins = pem(partner.certificate).replace("\n", "\\n")
        extra = (
            f"{SLOW}[security]\nsign = true\nrequire_signature = true\nencrypt = true\n"
            f'partner_certificates = ["{pins}"]\n'
        )
        change(pair, own, agree(own, extra=extra), keys=Keys(key.certificate, key.key))
    pair.alpha.submit(order())
    pair.settle("alpha")
    assert pair.alpha.submit(order()).repeated
    with pytest.raises(InvalidValue):
        pair.alpha.submit(order(b"pay 999 EUR to Bert"))
    with pair.beta.context.store.transition() as tx:
        (arrived,) = tx.incoming_by_id("order-1@alpha")
    assert arrived.incoming.state is IncomingState.READY


# --- at a hub ----------------------------------------------------------------------------------


@pytest.mark.requirement("HOP-8")
@pytest.mark.parametrize("gone", ["seller", "buyer", "hub1"])
@pytest.mark.parametrize("profile", ["window", "ms-0.9x"])
def test_a_hub_answers_a_copy_of_what_it_took_over_whatever_became_of_its_agreements(
    profile: str, gone: str
) -> None:
    hop = "store_and_forward"
    chain = Network.chain(options(profile, hops=2, hop_mode=hop))
    first = chain.send(0).message_id
    assert chain.state(first) is OutgoingState.DELIVERED
    copies = chain.between("buyer", "hub1")
    answers = chain.between("hub1", "buyer")
    chain.restart("hub1", gone)
    answer = chain.deliver("hub1", copies[0])
    said = chain.between("hub1", "buyer")[len(answers) :]
    if answer.parcel is not None:
        said.append(whole_parcel(chain.engines["hub1"].context, answer.parcel))
    assert [one.body for one in said] == [answers[0].body]
    assert chain.kinds("hub1", first).count("duplicate") == 1
    assert chain.kinds("seller", first).count("received") == 1
