"""Signed exchanges as raw files: messages, and the acknowledgements that their receiver signed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from oncewire.entry.messages.submitting import as_file
from oncewire.handler.context import Keys
from oncewire.handler.encryption import whole_parcel
from oncewire.wire.parcel import Parcel
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
    numbers: Iterable[int], signer: Identity | None = None, data: bytes | None = None
) -> Iterator[Exchange]:
    """The orders of these numbers; `signer`: who signs in beta's place; `data`: what they say."""
    pair = signed_pair(signed_acks=True)
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
