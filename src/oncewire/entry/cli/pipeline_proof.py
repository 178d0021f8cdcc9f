"""`oncewire pipeline prove | sign`: has anything changed since, and who says so. Without Spark."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from oncewire.entry.cli import output
from oncewire.entry.cli.lake_place import LakePath, Stores, book_at, lake_at, need_lake
from oncewire.entry.cli.output import Json, Report
from oncewire.entry.cli.pipeline_reports import report_of_proof
from oncewire.entry.cli.place import Config, loaded
from oncewire.errors import NotHere


def prove(
    lake: LakePath,
    store: Stores = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Whoever holds it must have signed the version.")
    ] = None,
    json: Json = False,
) -> None:
    """Show that journals are as they were taken in: the lake's, and with --store the store's.

    Status 1 if a row was changed, added or taken away since, or if rows are not those that their
    node chained. It needs no Spark.
    """

    def work() -> Report:
        need_lake(lake)
        from oncewire.pipeline.books import open_books
        from oncewire.pipeline.proof import check_book, check_lake

        place = lake_at(lake)
        version = place.current()
        signed = None
        if certificate is not None:
            from oncewire.entry.files import read_bytes
            from oncewire.pipeline.signed import is_signed_by
            from oncewire.wire.security.certificates import load_certificate

            shown = load_certificate(read_bytes(certificate, "certificate"))
            signed = is_signed_by(place, version, shown)
        found = [check_lake(place, version)]
        for each_place in store or []:
            found += [check_book(place, version, book) for book in open_books(book_at(each_place))]
        return report_of_proof(found, version.nodes, signed=signed)

    output.answer(work, json=json)


def sign(lake: LakePath, config: Config = None, json: Json = False) -> None:
    """Sign the lake's current version with the party's key, so that others can rely on it."""

    def work() -> Report:
        need_lake(lake)
        from oncewire.entry.running.assemble import keys_of
        from oncewire.pipeline.signed import sign_version

        keys = keys_of(loaded(config).settings)
        if keys is None:
            raise NotHere("the party has no key to sign with", remedy="`oncewire init` makes one")
        place = lake_at(lake)
        version = place.current()
        beside = sign_version(place, version, keys.signing_key)
        return Report(
            facts={"version": version.number, "signature": str(beside)},
            summary=f"version {version.number} is signed",
            hints=(f"oncewire pipeline prove --lake {quote(str(lake))} --certificate CERTIFICATE",),
        )

    output.answer(work, json=json)
