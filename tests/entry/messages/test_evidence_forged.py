"""Evidence that somebody forged: a genuine acknowledgement, passed off as that of another order."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from lxml import etree

from oncewire.entry.messages.evidence import evidence_of
from tests.entry.messages.test_evidence import checked, held_by_sender, tools_are_here, unpacked
from tests.handler.test_signed import signed_pair

pytestmark = pytest.mark.process
HOP = "urn:oasis:names:tc:ebxml-msg:actor:nextMSH"
DS = "http://www.w3.org/2000/09/xmldsig#"


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Evidence of two orders, both signed for; only the first one is to be believed below."""
    tools_are_here()
    pair = signed_pair(signed_acks=True)
    folders = []
    for number in (1, 2):
        sent = pair.send(number)
        folder = tmp_path_factory.mktemp(f"order{number}")
        folders.append(unpacked(evidence_of(held_by_sender(pair, sent.message_id)), folder))
        done = checked(folders[-1])
        assert done.returncode == 0, done.stderr
    return folders[0], folders[1]


def summed_anew(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text().split()[1::2]
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in lines]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")


def swapped(one: Path, two: Path, tmp_path: Path) -> Path:
    """The evidence of order 2 with everything of the acknowledgement of order 1."""
    forged = tmp_path / "forged"
    shutil.copytree(two, forged)
    for file in one.glob("acknowledgement*"):
        shutil.copy(file, forged)
    return forged


def ack_block(text: str) -> str:
    found = re.search(r"<(\w+):Acknowledgment\b.*</\1:Acknowledgment>", text, re.DOTALL)
    assert found is not None
    return found.group()


def for_the_hop(block: str) -> str:
    """The block where no signature is: addressed to the next hop."""
    bare = re.sub(r'\s\w+:actor="[^"]*"', "", block)
    return re.sub(
        r"^(<\w+:Acknowledgment)",
        rf'\1 xmlns:a="http://schemas.xmlsoap.org/soap/envelope/" a:actor="{HOP}"',
        bare,
    )


def in_header(text: str, block: str, *, first: bool = False) -> str:
    found = re.search(r"<(\w+):Header\b[^>]*>" if first else r"</\w+:Header>", text)
    assert found is not None
    at = found.end() if first else found.start()
    return text[:at] + block + text[at:]


def in_first_tag(text: str, before: str) -> str:
    at = text.index("?>") + 2 if text.startswith("<?xml") else 0
    return text[:at] + before + text[at:]


def fake_signature(other: str) -> str:
    found = re.search(r"<(\w+):Signature\b.*</\1:Signature>", other, re.DOTALL)
    assert found is not None
    spaces = f'xmlns:a="http://schemas.xmlsoap.org/soap/envelope/" a:actor="{HOP}"'
    return f'<x:hop xmlns:x="urn:x" {spaces}>{found.group()}</x:hop>'


# What is done to the genuine envelope of acknowledgement 1; the second text is that of 2.
FORGERIES: dict[str, Callable[[str, str], str]] = {
    "nothing but swapped": lambda one, two: one,
    "a comment behind": lambda one, two: one + f"<!-- {ack_block(two)} -->",
    "a comment in the header": lambda one, two: in_header(one, f"<!-- {ack_block(two)} -->"),
    "an instruction behind": lambda one, two: one + f"<?x {ack_block(two)} ?>",
    "an instruction in the header": lambda one, two: in_header(one, f"<?x {ack_block(two)} ?>"),
    "a CDATA section": lambda one, two: in_header(one, f"<![CDATA[{ack_block(two)}]]>"),
    "a CDATA section for the hop": lambda one, two: in_header(
        one,
        '<x:hop xmlns:x="urn:x" xmlns:a="http://schemas.xmlsoap.org/soap/envelope/" '
        f'a:actor="{HOP}"><![CDATA[{ack_block(two)}]]></x:hop>',
    ),
    "a second acknowledgement for the hop": lambda one, two: in_header(
        one, for_the_hop(ack_block(two))
    ),
    "a first acknowledgement for the hop": lambda one, two: in_header(
        one, for_the_hop(ack_block(two)), first=True
    ),
    "a second acknowledgement": lambda one, two: in_header(one, ack_block(two)),
    "another acknowledgement instead": lambda one, two: one.replace(ack_block(one), ack_block(two)),
    "the same one twice": lambda one, two: in_header(one, ack_block(one)),
    "a second signature for the hop": lambda one, two: in_header(one, fake_signature(two)),
    "a first signature for the hop": lambda one, two: in_header(
        one, fake_signature(two), first=True
    ),
    "a document type": lambda one, two: in_first_tag(one, "<!DOCTYPE x>"),
}


@pytest.mark.parametrize(
    ("how", "octets"),
    [(how, 1) for how in FORGERIES]
    + [(how, 2) for how in ("nothing but swapped", "another acknowledgement instead")],
)
def test_an_acknowledgement_of_another_order_is_refused(
    orders: tuple[Path, Path], tmp_path: Path, how: str, octets: int
) -> None:
    one, two = orders
    forged = swapped(one, two, tmp_path)
    envelopes = [(each / "acknowledgement.xml").read_text() for each in orders]
    text = FORGERIES[how](*envelopes)
    etree.fromstring(text.encode())  # Well-formed, or it would be refused for that alone.
    (forged / "acknowledgement.xml").write_text(text)
    if octets == 2:
        shutil.copy(two / "acknowledgement.c14n", forged)
    summed_anew(forged)
    done = checked(forged)
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("REFUSED: "), done.stderr
    assert "PROVED" not in done.stdout


@pytest.mark.parametrize(
    "how", ["a document type", "the same one twice", "a second signature for the hop"]
)
def test_even_the_right_acknowledgement_is_refused_with_what_could_be_read_in_two_ways(
    orders: tuple[Path, Path], tmp_path: Path, how: str
) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(orders[0], forged)
    text = (forged / "acknowledgement.xml").read_text()
    (forged / "acknowledgement.xml").write_text(FORGERIES[how](text, text))
    summed_anew(forged)
    assert checked(forged).returncode == 1


def test_what_nobody_signed_in_the_right_acknowledgement_does_it_no_harm(
    orders: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(orders[0], folder)
    one, two = [(each / "acknowledgement.xml").read_text() for each in orders]
    changed = in_header(one, for_the_hop(ack_block(two))) + "<!-- a hop wrote this -->"
    (folder / "acknowledgement.xml").write_text(changed)
    summed_anew(folder)
    done = checked(folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("encoding", ["utf-16", "utf-7"])
def test_an_encoding_in_which_a_document_type_could_hide_is_refused(
    orders: tuple[Path, Path], tmp_path: Path, encoding: str
) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(orders[0], forged)
    text = (forged / "acknowledgement.xml").read_text()
    declared = f'<?xml version="1.0" encoding="{encoding}"?>' + text[text.index("?>") + 2 :]
    raw = declared.encode(encoding) if encoding == "utf-16" else declared.encode()
    (forged / "acknowledgement.xml").write_bytes(raw)
    summed_anew(forged)
    done = checked(forged)
    assert done.returncode == 1
    assert "not plain text" in done.stderr or "unusual encoding" in done.stderr


@pytest.mark.parametrize("file", ["message.c14n", "payload-1", "message.xml"])
def test_what_was_signed_for_cannot_be_exchanged(
    orders: tuple[Path, Path], tmp_path: Path, file: str
) -> None:
    one, two = orders
    forged = tmp_path / "forged"
    shutil.copytree(one, forged)
    shutil.copy(two / file, forged)
    summed_anew(forged)
    assert checked(forged).returncode == 1
