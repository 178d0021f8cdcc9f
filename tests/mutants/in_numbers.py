"""Mutants of sequence numbers and windows that tests with real handlers must notice."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SENDING = "oncewire.protocol.sending"
_RECEIVING = "oncewire.protocol.receiving"
_RECEIVER = "oncewire.protocol.receiver"
_SEQUENCE = "oncewire.protocol.sequence"
_BLOCKS = "oncewire.wire.drafts.blocks"

_EPOCHS = "tests/protocol/test_epochs.py"
_NUMBERS = "tests/handler/test_numbers_on_the_wire.py"
_WINDOWS = "tests/handler/test_windows_at_work.py"
_CHANGED = "tests/handler/test_changed_numbers.py"
_RECEIVER_RESCOPED = "test_a_scope_that_its_receiver_changes_and_changes_back_stops_nothing"
_STILL_WAITED = "test_what_still_waited_under_the_old_scope_stops_nothing_under_the_new_one"
_ANOTHER = "test_a_name_that_another_agreement_uses_is_of_no_stream_that_changed_its_scope"
_RESCOPED = "test_a_scope_that_its_sender_changes_and_changes_back_stops_nothing"

IN_NUMBERS: tuple[Mutant, ...] = (
    Mutant(
        "a stream whose scope changed goes on with its old numbers",
        "oncewire.handler.perform:stream_to_number",
        "other.last_stamp <= channel.last_stamp",
        "True",
        tests=(f"{_CHANGED}::{_RESCOPED}",),
    ),
    Mutant(
        "a stream whose scope changed has earlier timestamps",
        "oncewire.handler.perform:stream_to_number",
        "replace(ended, last_stamp=other.last_stamp)",
        "ended",
        tests=(f"{_CHANGED}::{_RESCOPED}",),
    ),
    Mutant(
        "what a hub keeps back goes on with the old numbers of a stream whose scope changed",
        "oncewire.handler.perform:stream_to_number",
        "tx.save_sending_channel(channel)",
        "None",
        tests=(
            f"{_CHANGED}::test_a_stream_that_begins_anew_does_so_also_for_what_a_hub_kept_back",
        ),
    ),
    Mutant(
        "a stream of a new scope overtakes what waits on that of the old one",
        "oncewire.handler.perform:stream_to_join",
        "return other.key",
        "return key",
        tests=(f"{_CHANGED}::{_STILL_WAITED}",),
    ),
    Mutant(
        "a receiver whose scope changed begins a stream that its sender goes on with",
        "oncewire.handler.receiving.arrive:channel_of_arrival",
        "return other if other.goes_on(number, stamp_of(message, resolution), terms) else channel",
        "return channel",
        tests=(f"{_CHANGED}::{_RECEIVER_RESCOPED}",),
    ),
    Mutant(
        "a receiver whose scope changed counts what begins anew where it counted before",
        "oncewire.handler.receiving.arrive:channel_of_arrival",
        "other if other.goes_on(number, stamp_of(message, resolution), terms) else channel",
        "other",
        tests=(f"{_CHANGED}::{_RECEIVER_RESCOPED}", f"{_CHANGED}::{_RESCOPED}"),
    ),
    Mutant(
        "two agreements count in one stream, since one of them changed its scope",
        "oncewire.handler.receiving.arrive:channel_of_arrival",
        "is_of_another(name, context.agreements, Direction.RECEIVE)",
        "False",
        tests=(f"{_CHANGED}::{_ANOTHER}",),
    ),
    Mutant(
        "a stream per triple is not found under the transport that it had before",
        "oncewire.agreement.resolve:other_names",
        'tuple((f"{channel}/{transport}" for transport in TRANSPORTS))',
        '(f"{channel}/{terms.transports[0]}",)',
        tests=(f"{_CHANGED}::test_a_scope_that_changes_with_the_transport_stops_nothing",),
    ),
    Mutant(
        "all transports to a receiver are one stream",
        "oncewire.agreement.resolve:channel_of",
        "terms.scope is Scope.TRIPLE",
        "terms.scope is None",
        requirement="SEQ-1",
        tests=(f"{_NUMBERS}::test_two_transports_to_one_receiver_are_counted_apart",),
    ),
    Mutant(
        "v0-078 has one number less",
        _SEQUENCE,
        "4294967295",
        "4294967294",
        requirement="SEQ-2",
        tests=(f"{_NUMBERS}::test_after_the_last_number_comes_the_first",),
    ),
    Mutant(
        "the opener of the first epoch ages what came before it",
        f"{_RECEIVING}:ReceivingChannel.take",
        "self.epoch > 1",
        "self.epoch >= 1",
        requirement="SEQ-15",
        tests=(f"{_EPOCHS}::test_a_late_opener_of_the_first_epoch_makes_no_message_too_old",),
    ),
    Mutant(
        "a restart must be younger than the last message",
        f"{_RECEIVING}:ReceivingChannel._epoch_of",
        "stamp >= self.newest_stamp",
        "stamp > self.newest_stamp",
        requirement="SEQ-15",
        tests=(f"{_EPOCHS}::test_a_restart_within_one_tick_of_the_partners_clock_is_a_restart",),
    ),
    Mutant(
        "a message as old as the opener of its epoch is a straggler",
        f"{_RECEIVING}:ReceivingChannel._epoch_of",
        "stamp < self.oldest_stamp",
        "stamp <= self.oldest_stamp",
        requirement="SEQ-15",
        tests=(f"{_EPOCHS}::test_a_restart_within_one_tick_of_the_partners_clock_is_a_restart",),
    ),
    Mutant(
        "a skipped number was not passed",
        f"{_RECEIVING}:ReceivingChannel.skip_to",
        "passed + 1",
        "passed + (entry is not None)",
        requirement="SW-7",
        tests=(f"{_EPOCHS}::test_a_number_that_was_skipped_counts_as_passed",),
    ),
    Mutant(
        "v0-078 counts from zero",
        _SEQUENCE,
        "SequenceRange(1, 4294967295)",
        "SequenceRange(0, 4294967295)",
        requirement="SEQ-3",
        tests=(f"{_NUMBERS}::test_v0_078_counts_from_one_by_one",),
    ),
    Mutant(
        "the number after the previous one is refused",
        f"{_RECEIVING}:ReceivingChannel.fit",
        "place = self._place_of(sequence.number, ahead, kept)",
        "place = self._place_of(sequence.number, ahead, kept)\n"
        "if ahead == 0 and self.passed > 0:\n"
        "    return Fit.OCCUPIED",
        requirement="SEQ-5",
        tests=(f"{_NUMBERS}::test_v0_078_counts_from_one_by_one",),
    ),
    Mutant(
        "a repeated number is refused before its id is known",
        "oncewire.handler.receiving.arrive:Arriving._copy",
        "other = judge_copy(arrival, digest, channel)",
        "other = judge_copy(arrival, digest, channel) if arrival.sequence is None else "
        "judge(arrival, channel, resolution.terms, self.context.now())",
        requirement="SEQ-6 DUP-4 RM-17",
        tests=(f"{_NUMBERS}::test_the_same_number_again_is_a_repeat",),
    ),
    Mutant(
        "one after one is always a repeat",
        f"{_RECEIVING}:ReceivingChannel._epoch_of",
        "first = sequence.number == terms.numbers.first",
        "first = sequence.number == terms.numbers.first and self.passed > 1",
        requirement="SEQ-7",
        tests=(f"{_NUMBERS}::test_after_number_one_the_id_decides_whether_number_one_is_a_repeat",),
    ),
    Mutant(
        "number one never begins a new series",
        f"{_RECEIVING}:ReceivingChannel._epoch_of",
        "silent = terms.reset is ResetRule.SILENT",
        "silent = False",
        requirement="SEQ-8",
        tests=(f"{_NUMBERS}::test_number_one_after_another_number_begins_a_new_series",),
    ),
    Mutant(
        "v0-078 keeps what came too early",
        f"{_RECEIVING}:ReceivingChannel.fit",
        "return Fit.GAP if kept.on_gap is OnGap.REJECT else Fit.BEYOND",
        "return Fit.EARLY",
        requirement="SEQ-9",
        tests=(f"{_NUMBERS}::test_any_other_number_is_discarded_with_an_error",),
    ),
    Mutant(
        "an error about a later number ends the earlier ones",
        "oncewire.protocol.sender:attempt_due",
        "outgoing.attempts_here > terms.resends",
        "outgoing.attempts_here > 0",
        requirement="SEQ-10",
        tests=(f"{_NUMBERS}::test_the_missing_message_is_sent_again_after_the_error",),
    ),
    Mutant(
        "the slides' numbers end a little early",
        _SEQUENCE,
        "99999999",
        "99999998",
        requirement="SEQ-12",
        tests=(f"{_NUMBERS}::test_after_the_last_number_comes_the_first",),
    ),
    Mutant(
        "any word is a status",
        f"{_BLOCKS}:_sequence",
        "if status is None:\n"
        "    findings.not_recognized(f'Status {word[:32]!r} is neither Reset nor Continue', location, 'send Reset or Continue')",
        "if status is None and (not word):\n"
        "    findings.not_recognized(f'Status {word[:32]!r} is neither Reset nor Continue', location, 'send Reset or Continue')",
        requirement="SEQ-13",
        tests=(f"{_NUMBERS}::test_a_status_that_is_neither_is_refused",),
    ),
    Mutant(
        "only the first message of an epoch says reset",
        f"{_SENDING}:SendingChannel.status",
        "marked = terms.window_size if terms.reset is ResetRule.FIRST_WINDOW else 1",
        "marked = 1",
        requirement="SEQ-14",
        tests=(f"{_NUMBERS}::test_the_whole_first_window_says_reset_and_the_rest_continue",),
    ),
    Mutant(
        "only the first number of a window restarts the receiver",
        f"{_RECEIVING}:ReceivingChannel._epoch_of",
        "marked = first if silent else sequence.status is SequenceStatus.RESET",
        "marked = first",
        requirement="SEQ-15",
        tests=(f"{_NUMBERS}::test_any_message_of_the_first_window_begins_the_new_epoch",),
    ),
    Mutant(
        "stop-and-wait lets two messages go",
        "oncewire.protocol.terms:Terms.window_size",
        "return STOP_AND_WAIT_WINDOW",
        "return STOP_AND_WAIT_WINDOW + 1",
        requirement="SW-1",
        tests=(f"{_WINDOWS}::test_stop_and_wait_has_one_message_under_way",),
    ),
    Mutant(
        "the window has one place more than agreed",
        f"{_SENDING}:SendingChannel.places",
        "terms.window_size - self.span(terms)",
        "terms.window_size + 1 - self.span(terms)",
        requirement="SW-3 SW-4 SW-11",
        tests=(f"{_WINDOWS}::test_the_window_is_filled_and_never_passed",),
    ),
    Mutant(
        "the window counts what is unsettled, not what lies behind the first",
        f"{_SENDING}:SendingChannel.places",
        "self.span",
        "self.unsettled",
        requirement="SW-5 SW-6",
        tests=(f"{_WINDOWS}::test_the_window_slides_to_the_first_unacknowledged_number",),
    ),
    Mutant(
        "the receiver holds whatever comes early",
        f"{_RECEIVING}:ReceivingChannel._place_of",
        "ahead < kept.window_size or not kept.ordered",
        "ahead < 2 * kept.window_size or not kept.ordered",
        requirement="SW-9",
        tests=(f"{_WINDOWS}::test_no_more_than_a_window_is_held_and_all_comes_in_order",),
    ),
    Mutant(
        "the duplication window is one number too wide",
        f"{_SEQUENCE}:DuplicationWindow.start",
        "self.numbers.after(self.furthest, 1 - self.window)",
        "self.numbers.after(self.furthest, -self.window)",
        requirement="SW-7",
        tests=(
            f"{_CHANGED}::test_a_number_the_window_has_slid_past_is_stale_and_nobody_is_called",
        ),
    ),
    Mutant(
        "the duplication window is one number too narrow",
        f"{_SEQUENCE}:DuplicationWindow.__contains__",
        "self.numbers.distance(self.start, number) < self.window",
        "0 < self.numbers.distance(self.start, number) < self.window",
        requirement="SW-7",
        tests=(
            f"{_CHANGED}::test_a_number_inside_the_window_under_another_id_is_invalid_and_somebody_is_called",
        ),
    ),
    Mutant(
        "the last number of the next window is not new",
        f"{_SEQUENCE}:DuplicationWindow.is_ahead",
        "1 <= self.numbers.distance(self.furthest, number) <= self.window",
        "1 <= self.numbers.distance(self.furthest, number) < self.window",
        requirement="SW-8",
        tests=(
            f"{_CHANGED}::test_the_far_end_of_the_next_window_fits_and_what_lies_beyond_names_the_window",
        ),
    ),
    Mutant(
        "the duplication window ends at the latest arrival",
        f"{_RECEIVING}:ReceivingChannel.take",
        "replace(self, epoch=max(self.epoch, 1), expected=number, passed=passed, furthest=entry.number if further else self.furthest, held=tuple(held.values()), newest_stamp=max(self.newest_stamp, stamp), oldest_stamp=stamp if opens else self.oldest_stamp, numbers=kept.numbers, widest=kept.window_size)",
        "replace(self, epoch=max(self.epoch, 1), expected=number, passed=passed, furthest=entry.number, held=tuple(held.values()), newest_stamp=max(self.newest_stamp, stamp), oldest_stamp=stamp if opens else self.oldest_stamp, numbers=kept.numbers, widest=kept.window_size)",
        requirement="SW-8",
        tests=(
            f"{_CHANGED}::test_a_number_that_is_missing_fits_although_it_lies_inside_the_window",
        ),
    ),
    Mutant(
        "what is early is held although no order was agreed",
        f"{_RECEIVING}:ReceivingChannel.take",
        "if not kept.ordered and (not entry.refused):\n"
        "    released.append(entry)\n"
        "    entry = replace(entry, handed=True)",
        "if False:\n    released.append(entry)\n    entry = replace(entry, handed=True)",
        requirement="SW-10",
        tests=(f"{_CHANGED}::test_without_order_nothing_waits_for_a_lost_message",),
    ),
    Mutant(
        "the numbers go on in another range than they began in",
        f"{_SENDING}:SendingChannel._phase_under",
        "goes_on = same and self.next_number in terms.numbers",
        "goes_on = True",
        tests=(f"{_CHANGED}::test_a_range_that_changes_while_the_stream_is_idle",),
    ),
    Mutant(
        "what is under way is judged by a range agreed on later",
        f"{_RECEIVING}:ReceivingChannel.in_force",
        "numbers = self.numbers or terms.numbers",
        "numbers = terms.numbers",
        tests=(f"{_CHANGED}::test_a_range_that_changes_while_messages_are_under_way",),
    ),
    Mutant(
        "a message is resumed under a number that another has by now",
        "oncewire.handler.runtime.operate:resume_message",
        "_check_number(tx, stored.outgoing)",
        "None",
        requirement="SEQ-2",
        tests=(f"{_WINDOWS}::test_a_number_that_another_message_has_by_now_is_not_sent_again",),
    ),
)
