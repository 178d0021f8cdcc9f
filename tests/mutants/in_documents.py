"""Deliberate bugs of large documents: split, sent in parts, gathered and joined."""

# The replaced text is the product's own, as long as its lines are.

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LIFE = "tests/handler/documents/test_life.py"
_COLLISIONS = "tests/handler/documents/test_collisions.py"
_BESIDE = "tests/handler/documents/test_beside_the_loop.py"
_BOUNDS = "tests/handler/documents/test_bounds.py"
_FRAGMENTS = "tests/handler/documents/test_fragments.py"
_HOSTILE = "tests/handler/documents/test_hostile.py"
_TAKEN_BACK = "tests/handler/documents/test_taken_back.py"
_JOINED = "oncewire.handler.receiving.joining"
_JOINING = "oncewire.handler.receiving.joining"
_OUTCOME = "oncewire.handler.sending.parts"

IN_DOCUMENTS: tuple[Mutant, ...] = (
    Mutant(
        "a signed draft message says in no signed place that it is compressed",
        "oncewire.message.form:Form.carries_in_header",
        "return extension in self.extensions and extension not in _CARRIES[self.dialect]",
        "return extension in self.extensions",
        tests=(f"{_BOUNDS}::test_no_signature_covers_what_a_draft_says_beside_a_payload",),
    ),
    Mutant(
        "what has no timestamp of its hop passes the parts before it",
        "oncewire.handler.sending.transmit:_may_be_passed",
        "stamps_at_entry(terms) and terms.reset is not ResetRule.SILENT",
        "stamps_at_entry(terms)",
        requirement="SEQ-5",
        tests=(f"{_LIFE}::test_what_has_no_timestamp_of_its_hop_waits_for_the_parts_before_it",),
    ),
    Mutant(
        "a part is sent again when its document has ended",
        "oncewire.handler.runtime.operate:check_resumable",
        "if is_whole(stored):\n    _refuse_ended(stored)\n_refuse_part_of_ended(known, stored)",
        "if is_whole(stored):\n    _refuse_ended(stored)",
        tests=(
            f"{_LIFE}::test_no_part_of_a_document_that_failed_is_resumed_and_its_incident_can_be_closed",
        ),
    ),
    Mutant(
        "call a document delivered when its fragments are, before it names them",
        f"{_OUTCOME}:_proof",
        "(whole, index_stands(whole.outgoing))",
        "(whole, part.outgoing.proved_by)",
        requirement="BIG-6",
        tests=(f"{_FRAGMENTS}::test_it_leaves_as_fragments_and_a_message_that_names_them",),
    ),
    Mutant(
        "believe other parts after a hub took one back",
        f"{_OUTCOME}:_part_ended",
        "document = document.drop(number)",
        "pass",
        requirement="HOP-9",
        tests=(f"{_TAKEN_BACK}::test_other_parts_do_not_deliver_what_lacks_one",),
    ),
    Mutant(
        "believe an index whose fragments did not arrive",
        "oncewire.handler.sending.outgoing_document:index_heard_of",
        "document.complete",
        "document.total",
        requirement="HOP-9",
        tests=(f"{_TAKEN_BACK}::test_an_index_alone_delivers_no_document",),
    ),
    Mutant(
        "join fragments of whatever conversation",
        "oncewire.handler.receiving.gathering:_check_claim",
        "note is not None and note.state is DocumentState.OPEN and (note.about != about)",
        "note is not None and note.state is DocumentState.OPEN and (not note.about)",
        requirement="BIG-6",
        tests=(f"{_HOSTILE}::test_a_fragment_of_another_conversation_is_not_joined",),
    ),
    Mutant(
        "tear apart what was begun under an agreement that is replaced",
        "oncewire.handler.receiving.arrive:Arriving.__post_init__",
        "split = split_begun(self.tx, sender, self.message)",
        "split = None",
        requirement="BIG-6",
        tests=(f"{_HOSTILE}::test_what_was_begun_is_joined_though_its_agreement_is_replaced",),
    ),
    Mutant(
        "take a document for a fragment by its id",
        "oncewire.handler.receiving.gathering:_check_name",
        "named and is_early(split.split_id)",
        "named and (not split.total)",
        requirement="BIG-6",
        tests=(
            f"{_HOSTILE}::test_a_document_that_is_called_like_a_reference_is_refused_and_not_lost",
        ),
    ),
    Mutant(
        "say of the last part that it is there before its document is",
        "oncewire.handler.receiving.signals:_status",
        "if found and (not awaits_join(tx, found[0])):\n"
        "    status = _status_of(found[0].incoming.state)\n"
        "    received_at = found[0].incoming.received_at",
        "if found:\n"
        "    status = _status_of(found[0].incoming.state)\n"
        "    received_at = found[0].incoming.received_at",
        requirement="OPS-2",
        tests=(f"{_HOSTILE}::test_a_question_is_not_answered_before_the_document_is_whole",),
    ),
    Mutant(
        "let two documents have one fragment",
        "oncewire.handler.receiving.gathering:check_claims",
        "for name in named:\n    _check_claim(tx, sender, name, about)",
        "for name in named:\n    pass",
        requirement="BIG-6",
        tests=(f"{_FRAGMENTS}::test_what_cannot_be_a_fragment_is_refused_by_name",),
    ),
    Mutant(
        "join a document twice",
        f"{_JOINED}:finish_join",
        "tx.save_document(document.moved(DocumentState.WHOLE))",
        "tx.save_document(document)",
        requirement="BIG-6",
        tests=(f"{_LIFE}::test_what_is_whole_stays_whole_whatever_comes_after_it",),
    ),
    Mutant(
        "join without looking at the digest",
        f"{_JOINING}:_Travelled.__iter__",
        "content.digest not in (None, '', digest.hexdigest())",
        "content.digest is content",
        requirement="BIG-6",
        tests=(f"{_BOUNDS}::test_parts_that_are_not_what_was_split_are_refused",),
    ),
    Mutant(
        "join a document of which a part is missing",
        "oncewire.protocol.documents:SplitDocument.complete",
        "self.count == self.total",
        "self.count >= self.total - 1",
        requirement="BIG-6",
        tests=(f"{_LIFE}::test_a_part_that_never_arrives_ends_the_document_with_one_notice",),
    ),
    Mutant(
        "send all parts again when one is acknowledged",
        f"{_OUTCOME}:_part_ended",
        "document.add(number)",
        "replace(document.add(number), released=0)",
        requirement="BIG-4",
        tests=(f"{_LIFE}::test_it_is_handed_over_whole_and_once",),
    ),
    Mutant(
        "let a message take the id of a document that is gathered",
        "oncewire.handler.receiving.gathering:check_id",
        "if own or is_gathered(tx, sender, message_id):\n"
        "    raise Inconsistent(f'MessageId {message_id} is the SplitId of a document', location='//MessageData/MessageId', remedy='give every message, part and document an id of its own')",
        "if own:\n"
        "    raise Inconsistent(f'MessageId {message_id} is the SplitId of a document', location='//MessageData/MessageId', remedy='give every message, part and document an id of its own')",
        requirement="BIG-6",
        tests=(
            f"{_COLLISIONS}::test_a_message_under_the_id_of_a_document_that_is_gathered_is_refused",
        ),
    ),
    Mutant(
        "join parts whatever their headers say",
        "oncewire.protocol.documents:check_part",
        "said != before",
        "said is before is None",
        requirement="BIG-6",
        tests=(f"{_COLLISIONS}::test_a_part_with_another_header_than_its_document_is_refused",),
    ),
    Mutant(
        "a document takes an id that retention removed",
        "oncewire.handler.receiving.gathering:check_split_id",
        "if taken or any((gone.sender == sender for gone in tx.removed(split_id))):\n"
        "    raise Inconsistent(f'SplitId {split_id} is the id of another message or document', location='//SplitId', remedy='give every document a SplitId of its own')",
        "if taken:\n"
        "    raise Inconsistent(f'SplitId {split_id} is the id of another message or document', location='//SplitId', remedy='give every document a SplitId of its own')",
        requirement="BIG-6",
        tests=(f"{_COLLISIONS}::test_a_document_under_an_id_that_retention_removed_is_refused",),
    ),
    Mutant(
        "tell of each part that fails",
        "oncewire.handler.runtime.failures:tell_failures",
        "if is_part(stored) or not notices.is_due(context, tx, stored):\n"
        "    notices.withhold(context, tx, stored)\n"
        "    continue",
        "if not notices.is_due(context, tx, stored):\n"
        "    notices.withhold(context, tx, stored)\n"
        "    continue",
        requirement="BIG-3",
        tests=(f"{_LIFE}::test_a_part_that_never_arrives_ends_the_document_with_one_notice",),
    ),
    Mutant(
        "compress a document in the event loop",
        "oncewire.handler.sending.submit:_compressed",
        "contents = await asyncio.to_thread(write_contents, context, payloads, route)",
        "contents = write_contents(context, payloads, route)",
        tests=(f"{_BESIDE}::test_what_a_command_or_a_program_sends_is_compressed_beside_the_loop",),
    ),
    Mutant(
        "a partner gets a document as another one agreed to have it compressed",
        "oncewire.handler.sending.outgoing_document:compressed_key",
        "(ids, route.terms.max_size, _encoding(route), route.form.parts)",
        "(ids, route.terms.max_size, route.form.parts)",
        tests=(f"{_BESIDE}::test_what_was_compressed_for_one_partner_is_not_taken_for_another",),
    ),
    Mutant(
        "parts whose numbers wrap around are ordered by them",
        "oncewire.handler.receiving.joining:_place_in_stream",
        "-channel.numbers.distance(number, channel.expected)",
        "number",
        requirement="SEQ-2",
        tests=(
            "tests/handler/documents/test_life.py::test_parts_whose_numbers_wrap_around_keep_their_order",
        ),
    ),
    Mutant(
        "what follows a document goes on where the disk was full when it became whole",
        "oncewire.handler.receiving.gathering:forget_joined",
        "document is None or document.state is not DocumentState.JOINING",
        "True",
        requirement="SW-10",
        tests=(
            "tests/handler/documents/test_life.py::test_what_follows_a_document_waits_also_where_the_disk_was_full",
        ),
    ),
)
