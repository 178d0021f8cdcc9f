"""Mutants of retries and recovery that tests with real handlers must notice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ATTEMPTS = "oncewire.protocol.sender"
_ANSWERS = "oncewire.protocol.sender"
_OPERATING = "oncewire.protocol.sender"

_TESTS = "tests/handler/test_recovery_at_work.py"
_ENDS = "tests/handler/test_incidents_end.py"
_FULL = "tests/handler/test_disk_full.py"
_LAW = f"{_TESTS}::test_a_message_is_resent_by_the_law_and_never_given_up_early"

_CONTACTS = "tests/handler/test_contacts.py"

IN_RECOVERY: tuple[Mutant, ...] = (
    Mutant(
        "a partner that answers and takes nothing is tried for ever",
        f"{_OPERATING}:may_hurry",
        "outgoing.resumes < HURRIES_MAX",
        "outgoing.resumes >= 0",
        requirement="RTY-12",
        tests=(f"{_CONTACTS}::test_a_partner_that_answers_and_takes_nothing_keeps_no_message",),
    ),
    Mutant(
        "a partner that answers again is not tried before the timer",
        "oncewire.handler.contacts:Contacts._heard",
        "contact.unsent",
        "not contact.outcomes",
        tests=(f"{_CONTACTS}::test_a_partner_that_answers_again_is_tried_at_once",),
    ),
    Mutant(
        "a partner that asks for a pause is tried at once",
        f"{_OPERATING}:may_hurry",
        "way.paused_until <= now",
        "way.paused_until >= 0",
        requirement="RTY-8",
        tests=(f"{_CONTACTS}::test_a_partner_that_asks_for_a_pause_gets_it",),
    ),
    Mutant(
        "the log tells of a partner each time it comes and goes",
        "oncewire.handler.contacts:Contact.tell_at",
        "max(due, self.told_at + TOLD_EACH)",
        "due",
        tests=(f"{_CONTACTS}::test_a_partner_that_flaps_each_second_fills_no_log",),
    ),
    Mutant(
        "every wait is the first one's",
        f"{_ATTEMPTS}:_transmit",
        "wait = terms.timeout if first else terms.retry_interval",
        "wait = terms.timeout",
        requirement="RTY-2",
        tests=(_LAW,),
    ),
    Mutant(
        "given up one resend early",
        f"{_ATTEMPTS}:attempt_due",
        "outgoing.attempts_here > terms.resends",
        "outgoing.attempts_here >= terms.resends",
        requirement="RTY-18",
        tests=(_LAW,),
    ),
    Mutant(
        "a time-out is waited for twice as long before the resend",
        f"{_ATTEMPTS}:_transmit",
        "now + wait",
        "now + 2 * wait",
        requirement="RTY-7",
        tests=(_LAW,),
    ),
    Mutant(
        "a transport error is followed by a resend at once",
        f"{_ATTEMPTS}:transmission_failed",
        "due = max(outgoing.next_attempt_at or now, now + terms.retry_interval)",
        "due = now",
        requirement="RTY-6",
        tests=(
            f"{_TESTS}::test_after_a_transport_error_the_message_is_sent_again_after_an_interval",
        ),
    ),
    Mutant(
        "a communication error ends the message",
        f"{_ANSWERS}:error_arrived",
        "if kind is ErrorClass.TRANSIENT:\n"
        "    return _transient(outgoing, channel, terms, now, error, error_id)",
        "if kind is ErrorClass.TRANSIENT:\n"
        "    return _transient(outgoing, channel, terms, now, error, error_id)\n"
        "if kind is ErrorClass.COMMUNICATION:\n"
        "    return _messaging_error(outgoing, channel, terms, error, error_id)",
        requirement="ERR-1",
        tests=(
            f"{_TESTS}::test_a_communication_error_that_is_received_is_worked_like_a_local_one",
        ),
    ),
    Mutant(
        "after the pause the last message is not sent again",
        f"{_ANSWERS}:_transient",
        "outgoing.moved(OutgoingEvent.ERROR_ARRIVED, OutgoingState.OUTSTANDING, next_attempt_at=due)",
        "outgoing.moved(OutgoingEvent.ERROR_ARRIVED, OutgoingState.OUTSTANDING, next_attempt_at=None)",
        requirement="RTY-9",
        tests=(f"{_TESTS}::test_a_transient_error_stops_the_sender_for_as_long_as_it_says",),
    ),
    Mutant(
        "a transient error during another recovery is not heard",
        f"{_ANSWERS}:_transient",
        "if outgoing.state is not OutgoingState.OUTSTANDING:\n"
        "    return SenderStep(outgoing, channel, (note,))",
        "if outgoing.attempts_lost or outgoing.next_attempt_at:\n"
        "    return SenderStep(outgoing, channel, (note,))",
        requirement="RTY-10",
        tests=(f"{_TESTS}::test_another_error_switches_to_its_own_recovery",),
    ),
    Mutant(
        "a transient error gives a retry back",
        f"{_ANSWERS}:_transient",
        "outgoing.moved(OutgoingEvent.ERROR_ARRIVED, OutgoingState.OUTSTANDING, next_attempt_at=due)",
        "outgoing.moved(OutgoingEvent.ERROR_ARRIVED, OutgoingState.OUTSTANDING, next_attempt_at=due, attempts_here=0)",
        requirement="RTY-11",
        tests=(
            f"{_TESTS}::test_all_errors_count_against_one_total_and_then_the_operator_is_called",
        ),
    ),
    Mutant(
        "used up retries of v0-078 fail the message and nobody is called",
        f"{_ATTEMPTS}:_exhausted",
        "terms.on_exhausted is OnExhausted.SUSPEND_CHANNEL",
        "terms.on_exhausted is None",
        requirement="RTY-12 OPS-1",
        tests=(
            f"{_TESTS}::test_all_errors_count_against_one_total_and_then_the_operator_is_called",
        ),
    ),
    Mutant(
        "a messaging error keeps its place in the window",
        f"{_ANSWERS}:_refused",
        "go_on(refused, channel, terms, effects, Fate.GIVEN_UP)",
        "SenderStep(refused, channel, effects)",
        requirement="ERR-2",
        tests=(f"{_TESTS}::test_a_messaging_error_is_passed_up_and_the_transfer_goes_on",),
    ),
    Mutant(
        "the retries of the first transport are those of all",
        f"{_ATTEMPTS}:_on_next_transport",
        "replace(outgoing, transport=outgoing.transport + 1, attempts_here=0)",
        "replace(outgoing, transport=outgoing.transport + 1, attempts_here=3)",
        requirement="RTY-4",
        tests=(f"{_TESTS}::test_the_retries_of_each_transport_are_counted_apart",),
    ),
    Mutant(
        "the incident of a pause outlives it",
        "oncewire.handler.runtime.operate:_is_over",
        "return receiver is None or receiver.paused_until <= context.now()",
        "return receiver is None",
        tests=(f"{_ENDS}::test_the_incident_of_a_pause_ends_with_it",),
    ),
    Mutant(
        "a disk is called free because a row could be kept",
        "oncewire.handler.runtime.upkeep:OutageIncident.run",
        "await asyncio.to_thread(self._works)\n"
        "if came == self._came:\n"
        "    await self._loop.operate(lambda engine: engine.resume(channel=self._channel))\n"
        "    self._open = came != self._came\n"
        "    self.trouble = self.trouble if self._open else None",
        "if came == self._came:\n"
        "    await self._loop.operate(lambda engine: engine.resume(channel=self._channel))\n"
        "    self._open = came != self._came\n"
        "    self.trouble = self.trouble if self._open else None",
        tests=(f"{_FULL}::test_the_incident_of_a_full_disk_ends_when_there_is_room_again",),
    ),
    Mutant(
        "a full disk that a run left open is nobody's",
        "oncewire.handler.runtime.upkeep:OutageIncident.run",
        "if await self._loop.operate(lambda engine: engine.is_called(self._channel)):\n"
        "    self._open = True",
        "await self._loop.operate(lambda engine: engine.is_called(self._channel))",
        tests=(
            f"{_FULL}::test_a_disk_that_was_emptied_while_nobody_ran_is_found_at_the_next_start",
        ),
    ),
    Mutant(
        "a damaged database is waited for",
        "oncewire.handler.receiving.release:call_operator",
        "waits = isinstance(problem, StoreFull | StoreGone) and (not isinstance(problem, StoreCorrupt))",
        "waits = isinstance(problem, StoreFull | StoreGone)",
        tests=(f"{_ENDS}::test_troubles_of_the_store_that_end_in_another_way_are_told_apart",),
    ),
)
