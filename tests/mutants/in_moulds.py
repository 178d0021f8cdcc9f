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
_AT_WORK = "tests/handler/receiving/test_moulds_at_work.py"

IN_MOULDS: tuple[Mutant, ...] = (
    Mutant(
        "any character may stand in an id of a mould",
        f"{_FORMS}:_id",
        "0 < len(value) <= ID_LENGTH_MAX and (not value.translate(None, _ID))",
        "0 < len(value) <= ID_LENGTH_MAX and value.isascii()",
        tests=(_ALIKE,),
    ),
    Mutant(
        "a leap second is left to a mould",
        _FORMS,
        "'([01]\\\\d|2[0-3]){0}[0-5]\\\\d{0}[0-5]\\\\d'",
        "'([01]\\\\d|2[0-3]){0}[0-5]\\\\d{0}[0-6]\\\\d'",
        tests=(_ALIKE,),
    ),
    Mutant(
        "what follows a gap is not compared",
        f"{_MOULD}:EnvelopeTemplate._values",
        "if end < 0 or not envelope.startswith(following, end):\n    return None",
        "if end < 0:\n    return None",
        tests=(_ALIKE,),
    ),
    Mutant(
        "what stands behind the last byte of a mould is not seen",
        f"{_MOULD}:EnvelopeTemplate._values",
        "if at != len(envelope):\n    return None",
        "pass",
        tests=(_ALIKE,),
    ),
    Mutant(
        "a mould forgets the rules between elements",
        f"{_MOULD}:EnvelopeTemplate.read",
        "self._order is not None and next(ebms2_rules.broken(message), None) is not None",
        "self._order is not None and False",
        tests=(f"{_TESTS}::test_a_number_beyond_its_rules_is_left_to_the_full_reader",),
    ),
    Mutant(
        "a mould is kept untried",
        f"{_MOULD}:learned",
        "return mould if is_sound else None",
        "return mould",
        tests=(f"{_TESTS}::test_a_value_that_the_reader_takes_from_elsewhere_is_found_out",),
    ),
    Mutant(
        "what an acknowledgement of the drafts is about is learned by heart",
        f"{_MOULD}:EnvelopeTemplate._place",
        "named is None",
        "named is not None",
        tests=(
            _ALIKE,
            f"{_AT_WORK}::test_messages_and_acknowledgements_are_read_by_what_was_learned",
        ),
    ),
    Mutant(
        "a signature that could not differ is learned",
        f"{_MOULD}:learned",
        "Field.MESSAGE_ID not in fields or (base.signed and Field.SIGNATURE_VALUE not in fields)",
        "Field.MESSAGE_ID not in fields or not fields",
        tests=(f"{_TESTS}::test_a_signature_without_a_value_teaches_nothing",),
    ),
    Mutant(
        "the digests of a signed acknowledgement are learned by heart",
        f"{_DIGESTED}:Digested.cast",
        "digest = base64.b64decode(value)",
        "pass",
        tests=(
            _ALIKE,
            f"{_TESTS}::test_what_a_signed_acknowledgement_has_digests_of_is_read_from_its_gaps",
        ),
    ),
    Mutant(
        "one partner takes the places of all",
        f"{_MOULDS}:EnvelopeTemplates.learn_of",
        "self._of_one",
        "self._most",
        tests=(f"{_TESTS}::test_a_partner_has_his_own_places_and_the_one_used_last_stays",),
    ),
    Mutant(
        "the table of moulds has no bound",
        f"{_MOULDS}:EnvelopeTemplates.learn_of",
        "if len(self) >= self._most:\n    self._forget_oldest()",
        "pass",
        tests=(f"{_TESTS}::test_the_table_is_bounded",),
    ),
    Mutant(
        "strangers teach",
        "oncewire.handler.receiving.receive:receive_message",
        "'Take one message that could be read.'\nmessage = received.message",
        "'Take one message that could be read.'\n"
        "context.caches.envelopes.learn(received, 'anybody', context.limits)\n"
        "message = received.message",
        tests=(f"{_AT_WORK}::test_a_stranger_teaches_nothing",),
    ),
    Mutant(
        "how a known envelope is signed may differ",
        f"{_KNOWN}:SignatureTemplate.references",
        "if any((holes[number] != text for number, text in self._fixed)):\n    return None",
        "if False:\n    return None",
        tests=(f"{_SIGNED}::test_how_something_is_signed_is_no_text_that_may_differ",),
    ),
    Mutant(
        "the digest of a known envelope is not compared",
        f"{_KNOWN}:SignatureTemplate.verify",
        "if not covering.same_digest(algorithms.digest(covering.digest_name, octets)):\n"
        "    return None",
        "if not octets and (not covering.same_digest(algorithms.digest(covering.digest_name, octets))):\n"
        "    return None",
        tests=(f"{_SIGNED}::test_every_check_is_made_of_what_is_known_too",),
    ),
    Mutant(
        "the parts of a known envelope are not compared",
        f"{_KNOWN}:SignatureTemplate.verify",
        "digests = signature.part_digests(found, parts)\n"
        "signature.check_part_digests(found.references, digests)",
        "digests = signature.part_digests(found, parts)",
        tests=(f"{_SIGNED}::test_every_check_is_made_of_what_is_known_too",),
    ),
    Mutant(
        "the certificate of a known signer is not checked again",
        f"{_KNOWN}:SignatureTemplate.verify",
        "certificate = signature.signer_of(found, trust, now, policy)",
        "certificate = trust.pinned[0]",
        tests=(
            f"{_SIGNED}::test_every_check_is_made_of_what_is_known_too",
            f"{_SIGNED}::test_no_forgery_is_accepted_by_what_was_learned",
        ),
    ),
    Mutant(
        "a comment is text to a pattern",
        f"{_PATTERN}:SlottedBytes.is_plain",
        "return len(document) <= DOCUMENT_MAX and len(self.holes) <= _HOLES_MAX and (encoding_of(document, None)[0] in ('utf-8', 'utf8')) and (b'<!' not in document) and (b'<?' not in document[1:]) and all((name.endswith(_NAMING) for name in names)) and (b'xmlns:href' not in document) and (_MARKED.search(document) is None)",
        "return len(document) <= DOCUMENT_MAX and len(self.holes) <= _HOLES_MAX and (encoding_of(document, None)[0] in ('utf-8', 'utf8')) and (b'<?' not in document[1:]) and all((name.endswith(_NAMING) for name in names)) and (b'xmlns:href' not in document) and (_MARKED.search(document) is None)",
        tests=(f"{_SIGNED}::test_what_no_pattern_is_made_of",),
    ),
    Mutant(
        "a sign of a gap in a document is a gap",
        "oncewire.wire.templates.pattern:_key",
        "(document.markup, document.texts, len(document.holes))",
        "(document.markup, 0, 0)",
        tests=(f"{_SIGNED}::test_signs_that_look_like_gaps_are_told_from_them",),
    ),
)
