"""Evidence of a message, checked as a stranger would: with openssl and xmlsec1 alone."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from oncewire.entry.messages.evidence import CANONICAL, Evidence, Held, evidence_of
from oncewire.entry.party.partners import with_values
from oncewire.handler.sealing.seal import whole_parcel
from oncewire.wire.security.certificates import load_certificate
from tests.entry.served import both_served
from tests.entry.terminal import run, run_json
from tests.handler.pair import Pair
from tests.handler.test_signed import pem, signed_pair
from tests.parts import missing
from tests.ports import free_port
from tests.wire.security.keys import mallory

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    for tool in ("openssl", "xmlsec1"):
        if shutil.which(tool) is None:
            missing(f"no {tool}: `make setup` installs it on Debian as root")


def held_by_sender(pair: Pair, message_id: str) -> Held:
    node = pair.alpha.node
    with node.store.reader() as reader:
        parcel, receipt = reader.outgoing_parcel(message_id), reader.receipt(message_id)
    assert parcel is not None
    answer = None if receipt is None else whole_parcel(node, receipt.parcel)
    at = None if receipt is None else receipt.received_at
    agreed = (load_certificate(pem(mallory("rsa").certificate).encode()),)
    return Held(message_id, "alpha", True, whole_parcel(node, parcel), answer, at, "story", agreed)


def held_by_receiver(pair: Pair, message_id: str) -> Held:
    node = pair.beta.node
    with node.store.reader() as reader:
        (arrived,) = reader.incoming(message_id)
    assert arrived.parcel is not None
    assert arrived.answer is not None
    message, answer = whole_parcel(node, arrived.parcel), whole_parcel(node, arrived.answer.parcel)
    return Held(message_id, "beta", False, message, answer, None, "story")


def unpacked(made: Evidence, folder: Path) -> Path:
    file = folder / "evidence.zip"
    file.write_bytes(made.as_zip())
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "evidence")
    return folder / "evidence"


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run what the page says, in a place where nothing of ours is found."""
    return subprocess.run(
        ["/bin/sh", str(folder / "verify.sh")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize("side", [held_by_sender, held_by_receiver])
def test_either_side_can_show_a_stranger_that_it_was_received(tmp_path: Path, side: object) -> None:
    pair = signed_pair(signed_acks=True)
    sent = pair.send()
    made = evidence_of(side(pair, sent.message_id))  # type: ignore[operator]
    assert made.signed_for
    folder = unpacked(made, tmp_path)
    done = checked(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything here is as it says." in done.stdout
    assert (folder / "payload-1").read_bytes() == b"order 1"
    page = (folder / "README.txt").read_text()
    assert "signed that it received exactly this message" in page
    for command in (folder / "verify.sh").read_text().splitlines()[7:-1]:
        assert f"$ {command}" in page


@pytest.mark.parametrize(
    "file",
    ["payload-1", "message.xml", "acknowledgement.xml", "receiver.pem", "sender.pem"],
)
def test_whoever_changes_a_file_is_found_out_even_if_the_sums_are_made_anew(
    tmp_path: Path, file: str
) -> None:
    pair = signed_pair(signed_acks=True)
    sent = pair.send()
    folder = unpacked(evidence_of(held_by_sender(pair, sent.message_id)), tmp_path)
    changed = folder / file
    other = {"receiver.pem": "sender.pem", "sender.pem": "receiver.pem"}
    if file in other:
        changed.write_bytes((folder / other[file]).read_bytes())
    else:
        text = changed.read_bytes()
        changed.write_bytes(text.replace(b"order", b"0rder"))
        assert changed.read_bytes() != text
    assert checked(folder).returncode != 0
    (folder / "SHA256SUMS").write_bytes(b"")
    done = checked(folder)
    assert done.returncode != 0, done.stdout
    assert "Everything" not in done.stdout


def test_a_message_that_nobody_signed_is_signed_for_all_the_same(tmp_path: Path) -> None:
    pair = signed_pair(signed_acks=True, sign=False)
    sent = pair.send()
    made = evidence_of(held_by_sender(pair, sent.message_id))
    assert made.signed_for
    assert CANONICAL in made.files
    folder = unpacked(made, tmp_path)
    done = checked(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (folder / "README.txt").read_text()
    assert "The message is not signed." in page
    (folder / CANONICAL).write_bytes(b"<another/>")
    (folder / "SHA256SUMS").write_bytes(b"")
    assert checked(folder).returncode != 0


def test_without_a_signature_of_the_receiver_the_page_promises_nothing(tmp_path: Path) -> None:
    pair = signed_pair(signed_acks=False)
    sent = pair.send()
    made = evidence_of(held_by_sender(pair, sent.message_id))
    assert not made.signed_for
    folder = unpacked(made, tmp_path)
    assert checked(folder).returncode == 0
    page = (folder / "README.txt").read_text()
    assert "nothing here proves that it was received" in page


def test_of_an_encrypted_document_the_plain_one_is_what_was_signed_for(tmp_path: Path) -> None:
    pair = signed_pair(signed_acks=True, encrypt=True)
    sent = pair.send()
    folder = unpacked(evidence_of(held_by_sender(pair, sent.message_id)), tmp_path)
    assert checked(folder).returncode != 0, "nobody has put in the document"
    (folder / "DOCUMENT").write_bytes(b"order 1")
    done = checked(folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_writes_it_at_both_sides(parties: Path, tmp_path: Path) -> None:
    for name in ("acme", "globex"):
        file = parties / name / "oncewire.toml"
        file.write_text(with_values(file.read_text(), {"http.port": str(free_port())}))
    run("partner", "add", parties / "globex", "--both", "--insecure", "--sign")
    order = tmp_path / "order.xml"
    order.write_text("<order/>")
    with both_served(parties):
        found = run_json("send", order, "--to", "globex", "--wait", "--timeout", "60")
    message_id = found["messages"][0]["message_id"]
    for name in ("acme", "globex"):
        file = tmp_path / f"{name}.zip"
        told = run_json("evidence", message_id[:12], "--out", file, "-c", parties / name)
        assert told["signed_for"]
        assert told["message_id"] == message_id
        with zipfile.ZipFile(file) as archive:
            archive.extractall(tmp_path / name)
        done = checked(tmp_path / name)
        assert done.returncode == 0, done.stdout + done.stderr
        page = (tmp_path / name / "README.txt").read_text()
        assert "It is the certificate that the agreement names for the other side." in page
    assert "evidence-" in run_json("evidence", message_id)["file"]
