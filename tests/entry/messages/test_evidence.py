"""Evidence of a message, checked as a stranger would: with openssl, xmlsec1 and xmllint alone."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from oncewire.entry.cli import history
from oncewire.entry.messages import stored
from oncewire.entry.messages.evidence import Evidence, Held, evidence_of, evidence_of_parts
from oncewire.entry.messages.stored import held_of
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import load
from oncewire.errors import StoreDamaged
from oncewire.handler.content_digest import with_digest
from oncewire.handler.encryption import whole_parcel
from oncewire.store.sqlite.store import SqliteStore
from oncewire.wire.parcel import Parcel
from oncewire.wire.security.certificates import load_certificate
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.handler.network import Network
from tests.handler.test_signed import chain_of, pem, signed_pair
from tests.parts import missing
from tests.ports import free_port
from tests.store.samples import TERMS, parcel
from tests.store.samples import sent as sent_message
from tests.wire.security.keys import alpha, issue, mallory

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    tools_are_here()


def tools_are_here() -> None:
    for tool in ("openssl", "xmlsec1", "xmllint"):
        if shutil.which(tool) is None:
            missing(f"no {tool}: `make setup` installs it on Debian as root")


def held_by_sender(pair: Network, message_id: str) -> Held:
    node = pair.alpha.context
    with node.store.reader() as reader:
        parcel, receipt = reader.outgoing_parcel(message_id), reader.receipt(message_id)
    assert parcel is not None
    answer = None if receipt is None else whole_parcel(node, receipt.parcel)
    at = None if receipt is None else receipt.received_at
    agreed = (load_certificate(pem(mallory("rsa").certificate).encode()),)
    return Held(message_id, "alpha", True, whole_parcel(node, parcel), answer, at, "story", agreed)


def held_by_receiver(pair: Network, message_id: str) -> Held:
    node = pair.beta.context
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
    assert f"signed for the message {sent.message_id} and its documents" in done.stdout
    assert (folder / "payload-1").read_bytes() == b"order 1"
    page = (folder / "README.txt").read_text()
    assert "signed that it received exactly this message" in page
    for mime in ("message.mime", "acknowledgement.mime"):
        (told,) = [line for line in page.splitlines() if line.strip().startswith(mime)]
        assert "proves nothing" in told


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
    assert "PROVED" not in done.stdout


def test_a_message_that_nobody_signed_is_signed_for_all_the_same(tmp_path: Path) -> None:
    pair = signed_pair(signed_acks=True, sign=False)
    sent = pair.send()
    made = evidence_of(held_by_sender(pair, sent.message_id))
    assert made.signed_for
    folder = unpacked(made, tmp_path)
    done = checked(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (folder / "README.txt").read_text()
    assert "The message is not signed." in page
    (folder / "message.c14n").write_bytes(b"<another/>")
    (folder / "SHA256SUMS").write_bytes(b"")
    assert checked(folder).returncode != 0


def damaged(parcel: Parcel, old: bytes, new: bytes) -> Parcel:
    """The parcel after somebody wrote to the store: not even the digest beside it tells."""
    assert old in parcel.body
    return with_digest(structs.replace(parcel, body=parcel.body.replace(old, new)))


@pytest.mark.parametrize(
    ("which", "old", "new", "told"),
    [
        ("message", b"order 1", b"0rder 1", "its document cid:order-1 is missing or was changed"),
        ("message", b">talk<", b">walk<", "its envelope was changed"),
        ("message", b"<ds:SignatureValue>", b"<ds:SignatureValue>AAAA", "not made with the key"),
        ("acknowledgement", b">talk<", b">walk<", "its envelope was changed"),
        ("acknowledgement", b"<ds:SignatureValue>", b"<ds:SignatureValue>AAAA", "not made with"),
    ],
)
def test_what_is_kept_is_checked_before_anything_is_said_of_it(
    which: str, old: bytes, new: bytes, told: str
) -> None:
    pair = signed_pair(signed_acks=True)
    held = held_by_sender(pair, pair.send().message_id)
    parcel = held.message if which == "message" else held.acknowledgement
    assert parcel is not None
    made = evidence_of(replace(held, **{which: damaged(parcel, old, new)}))
    assert not made.signed_for
    assert "Nothing here proves that it was received" in made.proves
    assert f"the {which} that is kept" in made.proves
    assert told in made.proves
    assert made.proves in made.files["README.txt"].decode()


def test_a_stored_byte_that_no_signature_covers_is_missed_too() -> None:
    pair = signed_pair(signed_acks=True, sign=False)
    held = held_by_sender(pair, pair.send().message_id)
    changed = structs.replace(held.message, body=held.message.body.replace(b">talk<", b">walk<"))
    assert "its digest is another one" in evidence_of(replace(held, message=changed)).proves
    # And where the digest was written anew, the acknowledgement knows.
    forged = evidence_of(replace(held, message=with_digest(changed)))
    assert not forged.signed_for
    assert "digest of the envelope is not that of what was sent" in forged.proves


def test_the_acknowledgement_of_another_message_proves_nothing() -> None:
    pair = signed_pair(signed_acks=True)
    one, two = (held_by_sender(pair, pair.send(number).message_id) for number in (1, 2))
    made = evidence_of(replace(two, acknowledgement=one.acknowledgement))
    assert not made.signed_for


def test_what_cannot_be_read_any_more_is_said_to_be_damaged() -> None:
    pair = signed_pair(signed_acks=True)
    held = held_by_sender(pair, pair.send().message_id)
    with pytest.raises(StoreDamaged, match="the message that is kept cannot be read any more"):
        evidence_of(replace(held, message=structs.replace(held.message, body=b"nothing")))


def test_without_a_signature_of_the_receiver_the_page_promises_nothing(tmp_path: Path) -> None:
    pair = signed_pair(signed_acks=False)
    sent = pair.send()
    made = evidence_of(held_by_sender(pair, sent.message_id))
    assert not made.signed_for
    folder = unpacked(made, tmp_path)
    done = checked(folder)
    assert done.returncode == 2
    assert "NOT PROVED" in done.stderr
    page = (folder / "README.txt").read_text()
    assert "nothing here proves that it was received" in page


def test_an_acknowledgement_for_the_hop_is_signed_by_nobody(tmp_path: Path) -> None:
    pair = signed_pair(signed_acks=True, actor="nextMSH")
    made = evidence_of(held_by_sender(pair, pair.send().message_id))
    assert not made.signed_for
    done = checked(unpacked(made, tmp_path))
    assert done.returncode == 2
    assert "NOT PROVED: the signature covers no acknowledgement" in done.stderr


def hub_signed() -> tuple[Network, str]:
    """A hub signed that it took an order over; the seller's word is not asked for."""
    people = {"buyer": alpha("rsa"), "seller": mallory("rsa"), "hub1": issue("hub1", "rsa")}
    of_hubs = '[ack]\nsignature = "never"\nhop_request = "Signed"\n'
    chain = chain_of(people, "ms-0.9x", of_hubs, hops=2, hop_mode="store_and_forward")
    return chain, chain.send(0).message_id


def test_what_a_hub_signed_proves_that_the_hub_has_it_and_no_more(
    parties: Path, tmp_path: Path
) -> None:
    chain, order = hub_signed()
    node = chain.engines["buyer"].context
    with node.store.reader() as reader:
        held = held_of(load(parties / "acme", environ={}).settings, reader, order)
    made = evidence_of(held)
    assert (made.signed_for, made.taken_over) == (False, True)
    assert "http://hub1/msh, a hub on the way, signed" in made.proves
    folder = unpacked(made, tmp_path)
    assert (folder / "hub.pem").is_file()
    assert not (folder / "receiver.pem").exists()
    page = (folder / "README.txt").read_text()
    assert "The receiver did not sign for it" in page
    done = checked(folder)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "NOT PROVED: the owner of hub.pem, a hub on the way" in done.stderr
    assert "PROVED: the owner of receiver.pem" not in done.stdout
    parts = evidence_of_parts(order, [held, held], 2)
    assert (parts.signed_for, parts.taken_over) == (False, True)


@pytest.mark.parametrize(
    ("signed_for", "taken_over", "code"), [(True, False, 0), (False, True, 3), (False, False, 1)]
)
def test_the_command_ends_with_what_is_proved(
    parties: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    signed_for: bool,
    taken_over: bool,
    code: int,
) -> None:
    settings = load(parties / "acme", environ={}).settings
    store = SqliteStore(settings.path(settings.store.path), node="acme")
    with store.transition() as tx:
        tx.remember_terms(TERMS)
        tx.add_outgoing(sent_message("order-1@acme"), parcel=parcel(), draft=None)
    store.commit()
    store.close()
    made = Evidence({"README.txt": b""}, "said", signed_for, taken_over)
    monkeypatch.setattr(stored, "evidence_for", lambda *_given: made)
    told = run_json(
        "evidence", "order-1@acme", "--output", tmp_path / "e.zip",
        "-c", parties / "acme", exit_code=code,
    )  # fmt: skip
    assert told["signed_for"] is signed_for
    assert told["taken_over"] is taken_over


def test_of_an_encrypted_document_the_plain_one_is_what_was_signed_for(tmp_path: Path) -> None:
    pair = signed_pair(signed_acks=True, encrypt=True)
    sent = pair.send()
    folder = unpacked(evidence_of(held_by_sender(pair, sent.message_id)), tmp_path)
    assert checked(folder).returncode != 0, "nobody has put in the document"
    (folder / "payload-1").write_bytes(b"order 1")
    done = checked(folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_writes_it_at_both_sides(
    parties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("acme", "globex"):
        file = parties / name / "oncewire.toml"
        file.write_text(with_values(file.read_text(), {"http.port": str(free_port())}))
    run("partner", "add", parties / "globex", "--both", "--insecure", "--sign")
    order = tmp_path / "order.xml"
    order.write_text("<order/>")
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(range(256)) * 100)
    for file in (parties / "acme/agreements/globex.toml", parties / "globex/agreements/acme.toml"):
        more = {"payload.max_size": "20000", "wire.extensions": '["split"]'}
        file.write_text(with_values(file.read_text(), more))
    with Served(parties, "acme", "globex"):
        found = run_json("send", order, "--to", "globex", "--wait", "--timeout", "60")
        in_parts = run_json("send", large, "--to", "globex", "--wait", "--timeout", "60")
    message_id = found["messages"][0]["message_id"]
    document_id = in_parts["messages"][0]["message_id"]
    for name in ("acme", "globex"):
        file = tmp_path / f"{name}.zip"
        told = run_json("evidence", message_id[:12], "--output", file, "-c", parties / name)
        assert told["signed_for"]
        assert told["message_id"] == message_id
        with zipfile.ZipFile(file) as archive:
            archive.extractall(tmp_path / name)
        done = checked(tmp_path / name)
        assert done.returncode == 0, done.stdout + done.stderr
        page = (tmp_path / name / "README.txt").read_text()
        assert "It is the certificate that the agreement names for the other side." in page
        parts = run_json(
            "evidence", document_id, "--output", tmp_path / "p.zip", "-c", parties / name
        )
        assert parts["signed_for"], parts
        assert "part-2/acknowledgement.xml" in parts["files"]
        (tmp_path / "p.zip").unlink()
        monkeypatch.setattr(history, "FILES_SHOWN", len(parts["files"]) - 1)
        few = run(
            "evidence", document_id, "--output", tmp_path / "p.zip", "-c", parties / name
        ).stdout
        assert f"{len(parts['files'])} files; `unzip -l" in few
        assert "part-2/" not in few
        (tmp_path / "p.zip").unlink()
    assert "evidence-" in run_json("evidence", message_id)["file"]
