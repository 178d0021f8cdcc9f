"""Mutants of differential reading: each would make it say something else than the full reader, or
learn what it must not."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DIGESTED = "oncewire.wire.templates.gaps"
_FORMS = "oncewire.wire.templates.gaps"
_MOULD = "oncewire.wire.templates.envelope"
_MOULDS = "oncewire.wire.templates.envelope"
_TESTS = "tests/wire/differential/test_moulds.py"
_ALIKE = f"{_TESTS}::test_an_envelope_like_a_learned_one_is_read_alike"
_KNOWN = "oncewire.wire.security.signature_template"
_PATTERN = "oncewire.wire.templates.pattern"
_SIGNED = "tests/wire/security/test_learned.py"
_AT_WORK = "tests/handler/arriving/test_moulds_at_work.py"

IN_MOULDS: tuple[Mutant, ...] = (
    Mutant(
        "any character may stand in an id of a mould",
        _FORMS,
        "and not value.translate(None, _ID)\n",
        "and value.isascii()\n",
        tests=(_ALIKE,),
    ),
    Mutant(
        "a leap second is left to a mould",
        _FORMS,
        "{0}[0-5]\\d{0}[0-5]\\d",
        "{0}[0-5]\\d{0}[0-6]\\d",
        tests=(_ALIKE,),
    ),
    Mutant(
        "what follows a gap is not compared",
        _MOULD,
        "            if end < 0 or not envelope.startswith(following, end):\n",
        "            if end < 0:\n",
        tests=(_ALIKE,),
    ),
    Mutant(
        "what stands behind the last byte of a mould is not seen",
        _MOULD,
        "        if at != len(envelope):\n            return None\n",
        "",
        tests=(_ALIKE,),
    ),
    Mutant(
        "a mould forgets the rules between elements",
        _MOULD,
        "next(ebms2_rules.broken(message), None) is not None:\n",
        "False:\n",
        tests=(f"{_TESTS}::test_a_number_beyond_its_rules_is_left_to_the_full_reader",),
    ),
    Mutant(
        "a mould is kept untried",
        _MOULD,
        "    return mould if is_sound else None\n",
        "    return mould\n",
        tests=(f"{_TESTS}::test_a_value_that_the_reader_takes_from_elsewhere_is_found_out",),
    ),
    Mutant(
        "what an acknowledgement of the drafts is about is learned by heart",
        _MOULD,
        "                if named is None or (Field.ACK_REF_TO, n) in places\n",
        "                if named is not None or (Field.ACK_REF_TO, n) in places\n",
        tests=(
            _ALIKE,
            f"{_AT_WORK}::test_messages_and_acknowledgements_are_read_by_what_was_learned",
        ),
    ),
    Mutant(
        "a signature that could not differ is learned",
        _MOULD,
        "(base.signed and Field.SIGNATURE_VALUE not in fields)",
        "not fields",
        tests=(f"{_TESTS}::test_a_signature_without_a_value_teaches_nothing",),
    ),
    Mutant(
        "the digests of a signed acknowledgement are learned by heart",
        _DIGESTED,
        "            digest = base64.b64decode(value)\n",
        "",
        tests=(
            _ALIKE,
            f"{_TESTS}::test_what_a_signed_acknowledgement_has_digests_of_is_read_from_its_gaps",
        ),
    ),
    Mutant(
        "one partner takes the places of all",
        _MOULDS,
        "        if len(owned) >= self._of_one:\n",
        "        if len(owned) >= self._most:\n",
        tests=(f"{_TESTS}::test_a_partner_has_his_own_places_and_the_one_used_last_stays",),
    ),
    Mutant(
        "the table of moulds has no bound",
        _MOULDS,
        "        elif len(self) >= self._most:\n            self._forget_oldest()\n",
        "",
        tests=(f"{_TESTS}::test_the_table_is_bounded",),
    ),
    Mutant(
        "strangers teach",
        "oncewire.handler.arriving.receive",
        "    message = received.message\n    kept = stored",
        '    node.moulds.learn(received, "anybody", node.limits)\n'
        "    message = received.message\n    kept = stored",
        tests=(f"{_AT_WORK}::test_a_stranger_teaches_nothing",),
    ),
    Mutant(
        "how a known envelope is signed may differ",
        _KNOWN,
        "        if any(holes[number] != text for number, text in self._fixed):\n",
        "        if False:\n",
        tests=(f"{_SIGNED}::test_how_something_is_signed_is_no_text_that_may_differ",),
    ),
    Mutant(
        "the digest of a known envelope is not compared",
        _KNOWN,
        "            if not covering.same_digest(",
        "            if not octets and not covering.same_digest(",
        tests=(f"{_SIGNED}::test_every_check_is_made_of_what_is_known_too",),
    ),
    Mutant(
        "the parts of a known envelope are not compared",
        _KNOWN,
        "            signature.check_part_digests(found.references, digests)\n",
        "",
        tests=(f"{_SIGNED}::test_every_check_is_made_of_what_is_known_too",),
    ),
    Mutant(
        "the certificate of a known signer is not checked again",
        _KNOWN,
        "            certificate = signature.signer_of(found, trust, now, policy)\n",
        "            certificate = trust.pinned[0]\n",
        tests=(
            f"{_SIGNED}::test_every_check_is_made_of_what_is_known_too",
            f"{_SIGNED}::test_no_forgery_is_accepted_by_what_was_learned",
        ),
    ),
    Mutant(
        "a comment is text to a pattern",
        _PATTERN,
        '            and b"<!" not in document\n',
        "",
        tests=(f"{_SIGNED}::test_what_no_pattern_is_made_of",),
    ),
    Mutant(
        "a sign of a gap in a document is a gap",
        "oncewire.wire.templates.pattern",
        "    return document.markup, document.texts, len(document.holes)\n",
        "    return document.markup, 0, 0\n",
        tests=(f"{_SIGNED}::test_signs_that_look_like_gaps_are_told_from_them",),
    ),
)
