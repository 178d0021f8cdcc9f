"""Mutants of documents that are streamed; the tests they name must notice them."""

# The replaced text is the product's own, as long as its lines are.

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CARRIER = "tests/handler/runtime/test_carrier.py"
_STREAMS = "tests/handler/test_streams.py"
_NAMES = "tests/message/test_file_name.py"
_WAYS = "tests/entry/delivery/test_ways.py"

IN_STREAMS: tuple[Mutant, ...] = (
    Mutant(
        "a file that has changed is given all the same",
        "oncewire.handler.spool_reading:Proofs.read",
        "asyncio.to_thread(self._is_good, name)",
        "asyncio.to_thread(bool, name)",
        tests=(f"{_STREAMS}::test_a_file_that_has_changed_is_given_to_nobody",),
    ),
    Mutant(
        "what stands around a file is sent unchecked",
        "oncewire.handler.content_digest:check_kept",
        "if parcel != with_pieces_digest(parcel):\n    raise changed(message_id)",
        "if not parcel.body:\n    raise changed(message_id)",
        tests=(f"{_STREAMS}::test_pieces_that_have_changed_are_not_sent",),
    ),
    Mutant(
        "a body of pieces goes out with the digest of its pieces",
        "oncewire.handler.runtime.handler:check_files",
        "return parcel if body is None else with_body_digest(parcel, body.digest())",
        "return parcel",
        tests=(f"{_STREAMS}::test_a_body_of_pieces_is_sent_with_the_digest_of_the_whole",),
    ),
    Mutant(
        "a file is closed while a thread reads it",
        "oncewire.handler.runtime.handler:Carrier._chunks",
        "try:\n"
        "    while (chunk := (await ahead.next())):\n"
        "        if not self._may_leave():\n"
        "            raise TransportProblem(_NO_LEASE)\n"
        "        self._note(message_id, len(chunk))\n"
        "        yield chunk\n"
        "finally:\n"
        "    await ahead.end()",
        "try:\n"
        "    while (chunk := (await ahead.next())):\n"
        "        if not self._may_leave():\n"
        "            raise TransportProblem(_NO_LEASE)\n"
        "        self._note(message_id, len(chunk))\n"
        "        yield chunk\n"
        "finally:\n"
        "    del ahead",
        tests=(
            f"{_CARRIER}::test_who_stops_in_the_middle_does_not_close_the_file_under_its_reader",
        ),
    ),
    Mutant(
        "whoever stops waiting for a piece takes the thread for stopped too",
        "oncewire.handler.runtime.handler:_ReadAhead.next",
        "await asyncio.shield(self._reading)",
        "await self._reading",
        tests=(
            f"{_CARRIER}::test_who_is_stopped_while_he_waits_does_not_close_the_file_under_its_reader",
        ),
    ),
    Mutant(
        "all of a document that is in parts is made in one turn",
        "oncewire.protocol.documents:parts_under_way",
        "return max(2, min(UNDER_WAY, UNDER_WAY_BYTES // size))",
        "return UNDER_WAY",
        tests=(
            "tests/handler/documents/test_life.py::test_large_parts_are_made_a_few_at_a_time",
            "tests/protocol/test_documents.py::test_so_many_parts_are_under_way_as_a_turn_can_make",
        ),
    ),
    Mutant(
        "a document that was refused stays in the spool",
        "oncewire.handler.sending.submit:HandedIn.let_go",
        "if self.kept:\n    self.spool.let_go(name)\nelse:\n    self.spool.give_back(name)",
        "if name:\n    self.spool.let_go(name)\nelse:\n    self.spool.give_back(name)",
        tests=(f"{_STREAMS}::test_what_is_refused_or_repeated_leaves_no_file",),
    ),
    Mutant(
        "the files of what waits for its number are nobody's",
        "oncewire.handler.sending.seal:store_outgoing",
        "tx.add_outgoing(stored, parcel=None, draft=draft, files=files, words=words)",
        "tx.add_outgoing(stored, parcel=None, draft=draft, words=words)",
        tests=(f"{_STREAMS}::test_what_waits_for_its_number_waits_as_a_file",),
    ),
    Mutant(
        "what waits for its number loses its document",
        "oncewire.handler.sending.seal:build_numbered",
        "message = drafted(parcel, received.message)",
        "message = received.message",
        tests=(f"{_STREAMS}::test_what_waits_for_its_number_waits_as_a_file",),
    ),
    Mutant(
        "a partner's name is a path",
        "oncewire.message.file_name:safe_name",
        "_RESERVED.sub",
        "re.compile('<').sub",
        tests=(_NAMES,),
    ),
    Mutant(
        "a partner's document passes for what is written about documents",
        "oncewire.entry.delivery.directory:_ending",
        "return f'{ending}.bin' if ending.lower().endswith(_OURS) else ending",
        "return ending",
        tests=(f"{_WAYS}::test_a_partners_name_is_part_of_a_files_name_and_no_more",),
    ),
)
