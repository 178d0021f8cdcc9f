"""Bugs on the last steps to an application, and in what is known of a refused number."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GIVEN_UP = "tests/handler/delivering/test_given_up.py"
_GIVEN = "tests/handler/delivering/test_given.py"
_ROOM = "tests/handler/delivering/test_room.py"
_VIEW = "tests/handler/delivering/test_view.py"
_DISCARDED = "tests/handler/test_discarded.py"
_ACCEPTED = "oncewire.handler.delivering.view"
_DELIVER = "oncewire.handler.delivering.deliver"

IN_HAND_OVER: tuple[Mutant, ...] = (
    Mutant(
        "lease what its taker cannot carry",
        f"{_DELIVER}:_give",
        "fitting.check(fitting.room.admit(taken), size)",
        "fitting.room.admit(taken)",
        tests=(f"{_ROOM}::test_what_is_known_only_when_it_is_read_counts_as_well",),
    ),
    Mutant(
        "let one message that never fits stop all others",
        f"{_DELIVER}:_Fitting.check",
        "if not self.alone and size <= self.whole:\n    raise _NoRoom",
        "if True:\n    raise _NoRoom",
        tests=(f"{_ROOM}::test_what_never_fits_waits_with_an_incident_and_delays_nobody_else",),
    ),
    Mutant(
        "give the application what nobody signed",
        f"{_ACCEPTED}:accepted",
        "if _is_accepted(message, stored):\n    return message",
        "if message is received.message:\n    return message",
        tests=(f"{_GIVEN}::test_a_part_that_nobody_signed_is_given_to_nobody",),
    ),
    Mutant(
        "give the application whatever the bytes say now",
        f"{_ACCEPTED}:accepted",
        "if _is_accepted(message, stored):\n    return message",
        "if True:\n    return message",
        tests=(f"{_GIVEN}::test_changed_bytes_are_given_to_nobody_and_delay_nobody",),
    ),
    Mutant(
        "give the parts of a view whatever has become of them",
        f"{_ACCEPTED}:part_data",
        "same = len(data) == payload.size and hashlib.sha256(data).hexdigest() == payload.digest",
        "same = len(data) == payload.size",
        tests=(f"{_GIVEN}::test_changed_bytes_are_given_to_nobody_and_delay_nobody",),
    ),
    Mutant(
        "give any message's view for this one",
        f"{_ACCEPTED}:_cut_out",
        "if not _is_accepted(message, stored):\n"
        "    raise _changed(stored, 'put its row back from a backup')",
        "if False:\n    raise _changed(stored, 'put its row back from a backup')",
        tests=(f"{_VIEW}::test_the_view_of_another_message_is_not_given_for_this_one",),
    ),
    Mutant(
        "believe a view that was changed",
        "oncewire.handler.delivering.view:read_view",
        "if hashlib.sha256(text).digest() != digest:\n"
        "    raise _damaged('it is not what was written')",
        "if False:\n    raise _damaged('it is not what was written')",
        tests=(f"{_VIEW}::test_a_damaged_view_says_nothing",),
    ),
    Mutant(
        "write down the view of what was decrypted",
        "oncewire.handler.delivering.view:view_of",
        "lies.get((payload.content_id, payload.digest))",
        "next(iter(lies.values()))",
        tests=(f"{_VIEW}::test_what_is_encrypted_is_read_again",),
    ),
    Mutant(
        "cut a part of a container out at the wrong place",
        "oncewire.wire.reader:MultipartReader._start_part",
        "MultipartReader(headers.params.get('boundary', ''), self._sink, self._limits, depth=self._depth + 1, work=self.work, begin=self._part_begin if self._placed and plain else None)",
        "MultipartReader(headers.params.get('boundary', ''), self._sink, self._limits, depth=self._depth + 1, work=self.work)",
        tests=(f"{_VIEW}::test_hand_over_parses_nothing",),
    ),
    Mutant(
        "open a payload by today's agreement",
        f"{_ACCEPTED}:_security_of",
        "agreement = context.agreement_accepted(stored)",
        "agreement = None",
        tests=(f"{_GIVEN}::test_payloads_are_opened_by_the_agreement_they_came_under",),
    ),
    Mutant(
        "journal the digest of the arrival at the hand-over",
        f"{_DELIVER}:_give",
        "taken.digest",
        "incoming.digest",
        tests=(f"{_GIVEN}::test_the_journal_has_the_digest_of_what_was_given",),
    ),
    Mutant(
        "believe the digest that a payload states",
        "oncewire.handler.delivering.deliver:_measured",
        "if isinstance(payload, DistantPayload) or payload.data is None:\n    return payload",
        "return payload",
        tests=(f"{_GIVEN}::test_the_journal_has_the_digest_of_what_was_given",),
    ),
    Mutant(
        "one message that cannot be given delays everybody",
        f"{_DELIVER}:hand_over",
        "limit - len(given) + 2 * len(withheld)",
        "limit - len(given)",
        tests=(f"{_GIVEN}::test_changed_bytes_are_given_to_nobody_and_delay_nobody",),
    ),
    Mutant(
        "overtake a message that cannot be given",
        f"{_DELIVER}:hand_over",
        "if channel is not None and _is_ordered(context, tx, stored):\n    blocked.add(channel)",
        "if channel is not None and _is_ordered(context, tx, stored):\n    pass",
        tests=(f"{_GIVEN}::test_what_follows_on_its_channel_waits_too",),
    ),
    Mutant(
        "take a refused number for proof that nothing arrived",
        "oncewire.protocol.sender:error_arrived",
        "return SenderStep(outgoing, channel, (note,))",
        "event, one_more = (OutgoingEvent.ERROR_ARRIVED, outgoing.attempts_lost + 1)\n"
        "lost = outgoing.moved(event, OutgoingState.OUTSTANDING, attempts_lost=one_more)\n"
        "return SenderStep(lost, channel, (note,))",
        requirement="ERR-9 SEQ-10",
        tests=(f"{_DISCARDED}::test_a_message_whose_number_was_refused_each_time_is_unknown",),
    ),
    Mutant(
        "what a person gave up is confirmed",
        "oncewire.handler.receiving.release:_close",
        "before.closed()",
        "replace(before, state=IncomingState.CONFIRMED, confirmed_at=context.now())",
        requirement="RM-2",
        tests=(f"{_GIVEN_UP}::test_who_gave_it_up_is_in_its_row_and_its_incident_is_closed",),
    ),
    Mutant(
        "nobody counts what a person gave up as lost",
        "oncewire.journal.predicates.receiver:judge_delivery",
        "if ABANDONED in trace.kinds:\n    _judge_given_up(subject, trace)",
        "if ABANDONED in trace.kinds:\n    continue",
        tests=(f"{_GIVEN_UP}::test_verify_counts_it_as_lost_and_says_who_gave_it_up",),
    ),
    Mutant(
        "a confirmation by hand passes for the application's own",
        f"{_DELIVER}:confirm",
        "Confirmed(by)",
        "Confirmed()",
        tests=(f"{_GIVEN_UP}::test_a_confirmation_by_hand_is_told_apart",),
    ),
    Mutant(
        "offer a message that a person gave up",
        "oncewire.handler.runtime.offers:HandOver.end",
        "if over is not None:\n    over.set()",
        "if over is None:\n    return",
        tests=(
            f"{_GIVEN_UP}::test_its_offer_ends_at_once_and_the_next_one_of_its_channel_goes_on",
        ),
    ),
    Mutant(
        "give up what the application was never offered",
        "oncewire.handler.receiving.release:give_up_received",
        "hopeless = [kept for kept in found if kept.incoming.state in _WAITING and (kept.incoming.hand_overs > 0 or not _reads(context, tx, kept))]",
        "hopeless = [kept for kept in found if kept.incoming.state in _WAITING]",
        tests=(f"{_GIVEN_UP}::test_what_the_application_was_never_offered_is_not_given_up",),
    ),
)
