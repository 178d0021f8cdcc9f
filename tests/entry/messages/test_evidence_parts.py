"""Evidence of a document that was sent in parts: of each part, and that they are all of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from oncewire.entry.messages.evidence import Evidence, evidence_of_parts
from oncewire.entry.messages.stored import parts_of
from tests.entry.messages.test_evidence import (
    checked,
    held_by_receiver,
    held_by_sender,
    tools_are_here,
    unpacked,
)
from tests.handler.documents.test_life import DATA, EBMS2, submit
from tests.handler.network import Network
from tests.handler.test_signed import signed_pair

pytestmark = [pytest.mark.process, pytest.mark.long]
DOCUMENT = DATA[:2500]


@pytest.fixture(scope="module")
def pair() -> Network:
    tools_are_here()
    made = signed_pair(signed_acks=True, more=EBMS2)
    submit(made, DOCUMENT)
    return made


def made_by_sender(pair: Network) -> Evidence:
    with pair.alpha.context.store.reader() as reader:
        parts, total = parts_of(reader, "doc@alpha")
    return evidence_of_parts("doc@alpha", [held_by_sender(pair, part) for part in parts], total)


def test_each_part_is_signed_for_and_they_join(pair: Network, tmp_path: Path) -> None:
    made = made_by_sender(pair)
    assert made.signed_for
    assert "sent in 3 parts" in made.proves
    folder = unpacked(made, tmp_path)
    done = checked(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PROVED: the owner of receiver.pem signed for each of the 3 parts" in done.stdout
    whole = b"".join((folder / f"part-{each}/payload-1").read_bytes() for each in (1, 2, 3))
    assert whole == DOCUMENT
    page = (folder / "README.txt").read_text()
    assert "part-2/  2-of-3.doc@alpha" in page
    # One that is missing, and one that stands in for another.
    shutil.rmtree(folder / "part-3")
    assert "part 3 of 3 is not here" in checked(folder).stderr
    shutil.copytree(folder / "part-2", folder / "part-3")
    done = checked(folder)
    assert done.returncode == 1
    assert "part 3 has another number" in done.stderr


def test_its_receiver_finds_the_parts_too(pair: Network) -> None:
    with pair.beta.context.store.reader() as reader:
        parts, total = parts_of(reader, "doc@alpha")
        assert parts_of(reader, "2-of-3.doc@alpha") == ((), 0)
    assert parts == tuple(f"{number}-of-3.doc@alpha" for number in (1, 2, 3))
    made = evidence_of_parts("doc@alpha", [held_by_receiver(pair, each) for each in parts], total)
    assert made.signed_for


def test_a_part_that_is_missing_is_named(pair: Network) -> None:
    parts = [held_by_sender(pair, f"{number}-of-3.doc@alpha") for number in (1, 2)]
    made = evidence_of_parts("doc@alpha", parts, 3)
    assert not made.signed_for
    page = made.files["README.txt"].decode()
    assert "Only 2 of its 3 parts" in page
    assert "nothing here proves that the document was received" in page
