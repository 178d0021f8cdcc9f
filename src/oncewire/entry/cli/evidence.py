"""`oncewire evidence`: what proves that a message was received, in a file for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.history import MessageId
from oncewire.entry.cli.listing import find_id
from oncewire.entry.cli.output import Json, Report, typed
from oncewire.entry.cli.place import Config, loaded
from oncewire.entry.number import number_of

FILES_SHOWN = 20
"""More are told as a number: a document may have travelled in hundreds of parts."""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("evidence")(evidence)


def evidence(
    message_id: MessageId,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; otherwise evidence-ID.zip.")
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Write a zip that proves what was sent and that it was received, for others to check.

    In it are the message, the signed acknowledgement, the certificates, their digests, a page in
    plain words, and how to check it with openssl, xmlsec1 and xmllint alone. It can be had of
    what we sent and of what we received, as long as the message is kept (`oncewire hold`). Where
    nobody signed for it, or the kept bytes are not what was signed, the page says so.

    Example: oncewire evidence 3f2a --out dispute.zip
    """

    def work() -> Report:
        import re

        from oncewire.entry.files import PRIVATE, write_new
        from oncewire.entry.messages.evidence import evidence_of
        from oncewire.entry.messages.evidence_of_parts import evidence_of_parts
        from oncewire.entry.messages.held import held_of, parts_of
        from oncewire.entry.running.assemble import open_readers

        settings = loaded(config).settings
        with open_readers(settings).reader() as reader:
            found = find_id(reader, message_id)
            parts, total = parts_of(reader, found)
            if parts:
                kept = [held_of(settings, reader, part) for part in parts]
                made = evidence_of_parts(found, kept, total)
            else:
                made = evidence_of(held_of(settings, reader, found))
        # A MessageId may hold what a file's name must not.
        file = out or Path(f"evidence-{re.sub(r'[^A-Za-z0-9._-]+', '_', found)[:80]}.zip")
        write_new(file, made.as_zip(), PRIVATE)
        files = f"{number_of(len(made.files), 'file')}; `unzip -l {typed(file)}` lists them"
        facts = {
            "message_id": found,
            "file": str(file),
            "signed_for": made.signed_for,
            "files": sorted(made.files) if json or len(made.files) <= FILES_SHOWN else files,
        }
        hints = (f"unzip {typed(file)} -d evidence && sh evidence/verify.sh",)
        return Report(facts, summary=made.proves, hints=hints)

    output.answer(work, json=json)
