"""Large: what an agreement says of documents that are too large for one message."""

from __future__ import annotations

from collections.abc import Iterator

from oncewire.agreement.agreement import ActionBinding, Agreement
from oncewire.agreement.check.finding import Danger, Severity
from oncewire.message.form import Extension, PartsForm
from oncewire.protocol.terms import FlowMode


def large_documents(agreement: Agreement, binding: ActionBinding) -> Iterator[Danger]:
    """What cannot travel as it is agreed."""
    terms = binding.terms
    yield from _fragments(agreement, binding)
    yield from _bounds(binding)
    for key, wanted, extension in (
        ("payload.max_size", terms.max_size is not None, Extension.SPLIT),
        ("payload.compress", terms.compress_encoding is not None, Extension.COMPRESSION),
    ):
        if wanted and not _can_carry(agreement, extension):
            what = "larger documents are refused" if key.endswith("size") else "nothing says so"
            yield Danger(
                Severity.HINT,
                key,
                f"{key} is agreed, but {extension.value} cannot travel: {what}",
                f'agree on the extension, on both sides: "{extension.value}" in wire.extensions',
            )


def _can_carry(agreement: Agreement, extension: Extension) -> bool:
    form = agreement.form
    # Fragments need neither: another message names them, and says how they are made.
    return form.parts is PartsForm.MID or form.carries(extension)


def _bounds(binding: ActionBinding) -> Iterator[Danger]:
    """Bounds under which a document that another bound allows is refused all the same."""
    terms = binding.terms
    whole, size = terms.max_document, terms.max_size
    if whole is not None and size is not None and whole <= size:
        yield Danger(
            Severity.DANGER,
            "payload.max_document",
            "it is no more than payload.max_size: no document in parts is ever taken",
            "agree on more, or leave it out",
        )
    if whole is not None and terms.quota is not None and terms.quota < whole:
        yield Danger(
            Severity.DANGER,
            "payload.quota",
            f"a document of payload.max_document, {whole:,} bytes, never fits into it",
            "agree on a quota of several documents",
        )
    most = None if terms.max_parts is None or size is None else terms.max_parts * size
    if most is not None and whole is not None and most < whole:
        yield Danger(
            Severity.HINT,
            "payload.max_parts",
            f"that many parts have {most:,} bytes, payload.max_document allows {whole:,}",
            "agree on more parts, or on a larger payload.max_size",
        )


def _fragments(agreement: Agreement, binding: ActionBinding) -> Iterator[Danger]:
    """What keeps documents from travelling as NHS Spine's fragments where that is agreed."""
    terms = binding.terms
    if agreement.form.parts is not PartsForm.MID or terms.max_size is None:
        return
    if terms.numbered or terms.flow is not FlowMode.UNRESTRICTED:
        yield Danger(
            Severity.ERROR,
            "payload.parts",
            "fragments have no place in a numbered stream: a document of more than MaxSize is "
            "refused",
            "agree on sequence.numbered = false and flow.mode = unrestricted, or on parts = split",
        )
    if terms.compress_encoding not in (None, "gzip"):
        yield Danger(
            Severity.ERROR,
            "payload.compress",
            "fragments are compressed by gzip or not at all: a document of more than MaxSize is "
            "refused",
            "agree on gzip, or on none",
        )
