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
        _DELIVER,
        "            fitting.check(fitting.room.admit(taken), size)\n",
        "            fitting.room.admit(taken)\n",
        tests=(f"{_ROOM}::test_what_is_known_only_when_it_is_read_counts_as_well",),
    ),
    Mutant(
        "let one message that never fits stop all others",
        _DELIVER,
        "        if not self.alone and size <= self.whole:\n",
        "        if True:\n",
        tests=(f"{_ROOM}::test_what_never_fits_waits_with_an_incident_and_delays_nobody_else",),
    ),
    Mutant(
        "give the application what nobody signed",
        _ACCEPTED,
        "        if _is_accepted(message, stored):\n",
        "        if message is received.message:\n",
        tests=(f"{_GIVEN}::test_a_part_that_nobody_signed_is_given_to_nobody",),
    ),
    Mutant(
        "give the application whatever the bytes say now",
        _ACCEPTED,
        "        if _is_accepted(message, stored):\n",
        "        if True:\n",
        tests=(f"{_GIVEN}::test_changed_bytes_are_given_to_nobody_and_delay_nobody",),
    ),
    Mutant(
        "give the parts of a view whatever has become of them",
        _ACCEPTED,
        "len(data) == payload.size and hashlib.sha256(data).hexdigest() == payload.digest",
        "len(data) == payload.size",
        tests=(f"{_GIVEN}::test_changed_bytes_are_given_to_nobody_and_delay_nobody",),
    ),
    Mutant(
        "give any message's view for this one",
        _ACCEPTED,
        "    if not _is_accepted(message, stored):\n",
        "    if False:\n",
        tests=(f"{_VIEW}::test_the_view_of_another_message_is_not_given_for_this_one",),
    ),
    Mutant(
        "believe a view that was changed",
        "oncewire.handler.delivering.view",
        "    if hashlib.sha256(text).digest() != digest:\n",
        "    if False:\n",
        tests=(f"{_VIEW}::test_a_damaged_view_says_nothing",),
    ),
    Mutant(
        "write down the view of what was decrypted",
        "oncewire.handler.delivering.view",
        "        place = lies.get((payload.content_id, payload.digest))\n",
        "        place = next(iter(lies.values()))\n",
        tests=(f"{_VIEW}::test_what_is_encrypted_is_read_again",),
    ),
    Mutant(
        "cut a part of a container out at the wrong place",
        "oncewire.wire.mime.multipart",
        "                begin=self._part_begin if self._is_plain(headers) else None,\n",
        "",
        tests=(f"{_VIEW}::test_hand_over_parses_nothing",),
    ),
    Mutant(
        "open a payload by today's agreement",
        _ACCEPTED,
        "    agreement = node.agreement_accepted(stored)\n"
        "    if agreement is None:\n        agreement = agreement_for(",
        "    agreement = None\n    if agreement is None:\n        agreement = agreement_for(",
        tests=(f"{_GIVEN}::test_payloads_are_opened_by_the_agreement_they_came_under",),
    ),
    Mutant(
        "journal the digest of the arrival at the hand-over",
        _DELIVER,
        "    journal_received(node, tx, stored, what, incoming, taken.digest)\n",
        "    journal_received(node, tx, stored, what, incoming, incoming.digest)\n",
        tests=(f"{_GIVEN}::test_the_journal_has_the_digest_of_what_was_given",),
    ),
    Mutant(
        "believe the digest that a payload states",
        "oncewire.handler.delivering.deliver",
        "    if isinstance(payload, DistantPayload) or payload.data is None:\n"
        "        return payload\n",
        "    return payload\n",
        tests=(f"{_GIVEN}::test_the_journal_has_the_digest_of_what_was_given",),
    ),
    Mutant(
        "one message that cannot be given delays everybody",
        _DELIVER,
        "        found = tx.ready(now, limit - len(given) + 2 * len(withheld))\n",
        "        found = tx.ready(now, limit - len(given))\n",
        tests=(f"{_GIVEN}::test_changed_bytes_are_given_to_nobody_and_delay_nobody",),
    ),
    Mutant(
        "overtake a message that cannot be given",
        _DELIVER,
        "                blocked.add(channel)\n",
        "                pass\n",
        tests=(f"{_GIVEN}::test_what_follows_on_its_channel_waits_too",),
    ),
    Mutant(
        "take a refused number for proof that nothing arrived",
        "oncewire.protocol.sender",
        "    return SenderStep(outgoing, channel, (note,))\n\n\ndef warning_arrived(",
        "    event, one_more = OutgoingEvent.ERROR_ARRIVED, outgoing.attempts_lost + 1\n"
        "    lost = outgoing.moved(event, OutgoingState.OUTSTANDING, attempts_lost=one_more)\n"
        "    return SenderStep(lost, channel, (note,))\n\n\ndef warning_arrived(",
        requirement="ERR-9 SEQ-10",
        tests=(f"{_DISCARDED}::test_a_message_whose_number_was_refused_each_time_is_unknown",),
    ),
    Mutant(
        "what a person gave up is confirmed",
        "oncewire.handler.arriving.release",
        "    incoming = before.closed()\n",
        "    incoming = replace(before, state=IncomingState.CONFIRMED, confirmed_at=node.now())\n",
        requirement="RM-2",
        tests=(f"{_GIVEN_UP}::test_who_gave_it_up_is_in_its_row_and_its_incident_is_closed",),
    ),
    Mutant(
        "nobody counts what a person gave up as lost",
        "oncewire.journal.predicates.delivery",
        "            _judge_given_up(subject, trace)\n",
        "            continue\n",
        tests=(f"{_GIVEN_UP}::test_verify_counts_it_as_lost_and_says_who_gave_it_up",),
    ),
    Mutant(
        "a confirmation by hand passes for the application's own",
        _DELIVER,
        "    journal_received(node, tx, stored, Confirmed(by), confirmed, confirmed.digest)\n",
        "    journal_received(node, tx, stored, Confirmed(), confirmed, confirmed.digest)\n",
        tests=(f"{_GIVEN_UP}::test_a_confirmation_by_hand_is_told_apart",),
    ),
    Mutant(
        "offer a message that a person gave up",
        "oncewire.handler.loop.offers",
        "        if over is not None:\n            over.set()\n",
        "        if over is None:\n            return\n",
        tests=(
            f"{_GIVEN_UP}::test_its_offer_ends_at_once_and_the_next_one_of_its_channel_goes_on",
        ),
    ),
    Mutant(
        "give up what the application was never offered",
        "oncewire.handler.arriving.release",
        "        and (kept.incoming.hand_overs > 0 or not _reads(node, tx, kept))\n",
        "",
        tests=(f"{_GIVEN_UP}::test_what_the_application_was_never_offered_is_not_given_up",),
    ),
)
