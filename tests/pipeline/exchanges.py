"""Signed exchanges as raw files: messages, and the acknowledgements that their receiver signed."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from pyspark.sql import SparkSession

from oncewire.handler.context import Keys
from oncewire.handler.encryption import whole_parcel
from oncewire.pipeline.tasks import run_each
from oncewire.wire.parcel import Parcel, as_file
from tests.handler.test_signed import signed_pair
from tests.wire.security.keys import Identity, alpha, mallory

PARTIES = {"urn:test:alpha": alpha("rsa"), "urn:test:beta": mallory("rsa")}
"""The parties of the exchanges, and their keys."""


class Exchange(NamedTuple):
    """A message that alpha signed, and the acknowledgement that beta signed."""

    message_id: str
    message: Parcel
    answer: Parcel

    def write(self, folder: Path) -> None:
        """Both as files of an archive."""
        for name, parcel in (("message", self.message), ("answer", self.answer)):
            (folder / f"{self.message_id}.{name}.mime").write_bytes(as_file(parcel))


def exchanges(
    numbers: Iterable[int],
    signer: Identity | None = None,
    data: bytes | None = None,
    people: Mapping[str, Identity] | None = None,
) -> Iterator[Exchange]:
    """The orders of these numbers; `signer`: who signs in beta's place; `data`: what they say;
    `people`: alpha and beta, where their keys are not those of this process."""
    pair = signed_pair(signed_acks=True, people=people)
    if signer is not None:
        pair.beta.context.keys = Keys(signer.certificate, signer.key)
    for number in numbers:
        message_id = pair.send(number, data).message_id
        with pair.alpha.context.store.reader() as reader:
            sent = reader.outgoing_parcel(message_id)
        with pair.beta.context.store.reader() as reader:
            (arrived,) = reader.incoming(message_id)
        assert sent is not None
        assert arrived.answer is not None
        yield Exchange(
            message_id,
            whole_parcel(pair.alpha.context, sent),
            whole_parcel(pair.beta.context, arrived.answer.parcel),
        )


PER_BUNDLE, PER_PAIR = 2_000, 200


def write_bundles(spark: SparkSession, folder: Path, count: int) -> None:
    """That many good exchanges as tar bundles, signed by Spark's tasks."""
    pems = {
        name: (PARTIES[f"urn:test:{name}"].key_pem, PARTIES[f"urn:test:{name}"].certificate_pem)
        for name in ("alpha", "beta")
    }
    starts = range(1, count + 1, PER_BUNDLE)
    run_each(
        spark,
        [
            partial(_write_bundle, folder, range(start, min(start + PER_BUNDLE, count + 1)), pems)
            for start in starts
        ],
    )


def _write_bundle(folder: Path, numbers: range, pems: Mapping[str, tuple[bytes, bytes]]) -> None:
    people = {
        name: Identity(
            serialization.load_pem_private_key(key, None), x509.load_pem_x509_certificate(known)
        )
        for name, (key, known) in pems.items()
    }
    with tarfile.open(folder / f"exchanges-{numbers.start:06d}.tar", "w") as bundle:
        # A pair keeps what it sent, so there is a new one after some.
        for start in range(numbers.start, numbers.stop, PER_PAIR):
            some = range(start, min(start + PER_PAIR, numbers.stop))
            for each in exchanges(some, people=people):
                for name, parcel in (("message", each.message), ("answer", each.answer)):
                    data = as_file(parcel)
                    entry = tarfile.TarInfo(f"{each.message_id}.{name}.mime")
                    entry.size = len(data)
                    bundle.addfile(entry, io.BytesIO(data))
