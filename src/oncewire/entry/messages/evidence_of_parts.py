"""Evidence of a document that was sent in parts: that of each part, and how they join."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from oncewire.entry.files import WHOLE_FILE_MAX
from oncewire.entry.messages.evidence import PAGE, SCRIPT, Evidence, Held, evidence_of
from oncewire.errors import NotAllowed

_WHOLE_SCRIPT = "verify_parts.sh"


def evidence_of_parts(document_id: str, parts: Sequence[Held], total: int) -> Evidence:
    """A folder for each part with all that is in the evidence of a message, and a page."""
    if sum(len(held.message.body) for held in parts) > WHOLE_FILE_MAX:
        raise NotAllowed(
            f"the {total} parts of {document_id} are too much for one file",
            remedy=f"make evidence of each part by itself, from `oncewire evidence "
            f"{parts[0].message_id}` on",
        )
    files: dict[str, bytes] = {}
    unproven = []
    for number, held in enumerate(parts, 1):
        made = evidence_of(held)
        files |= {f"part-{number}/{name}": content for name, content in made.files.items()}
        if not made.signed_for:
            unproven.append(f"Part {number}, {held.message_id}: {made.proves}")
    if len(parts) < total:
        unproven.append(f"Only {len(parts)} of its {total} parts are here.")
    proves = (
        "It was sent in parts, and not all of them are signed for: "
        "nothing here proves that the document was received."
        if unproven
        else f"The document was sent in {total} parts, and the receiver signed for each of them: "
        "the digests in the acknowledgements are those of the parts."
    )
    whole = resources.files("oncewire.entry.messages").joinpath(_WHOLE_SCRIPT).read_bytes()
    page = _page(document_id, parts, proves, unproven)
    return Evidence({PAGE: page.encode(), SCRIPT: whole, **files}, proves, not unproven)


def _page(document_id: str, parts: Sequence[Held], proves: str, unproven: Sequence[str]) -> str:
    lines = [f"Evidence of the document {document_id}", "", "What this proves", f"  {proves}"]
    lines += [f"  {each}" for each in unproven]
    lines += ["", "Its parts, each a message of its own with an acknowledgement of its own"]
    lines += [f"  part-{number}/  {held.message_id}" for number, held in enumerate(parts, 1)]
    return "\n".join(lines) + _HOW


_HOW = f"""

How they join
  Each part's message.c14n, which is signed for, says of which document it is a part (SplitId), its
  number and how many there are (SplitNumber), and which bytes it holds (Stretch): their offset, and
  the size and the SHA-256 of all that travelled. The payload-1 of all parts, one after the other,
  are that; if the Stretch names a compression, the document is what it was before it.

How to check it
  Run `sh {SCRIPT}`. It runs the one in each part's folder, which has a page of its own that says
  what is checked, and then looks that all the parts are here, that they are parts of the same
  document, and that they join to what has the announced SHA-256. It ends with 0 and a last line
  PROVED only if all of that is so. It needs openssl, xmlsec1 and xmllint.
"""
