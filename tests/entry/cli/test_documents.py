"""Large documents through commands and programs: files, pipes and open files go in, and come out
as they were, under their names."""

import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oncewire.entry.control.client import Remote
from oncewire.entry.party.partners import with_values
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import socket_path
from oncewire.entry.running.open_party import open_party_blocking
from oncewire.errors import InvalidValue, NotHere
from tests.entry.served import Served
from tests.entry.terminal import run, run_json
from tests.waiting import until

MEGABYTE = 1024 * 1024
pytestmark = pytest.mark.long


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "Übersicht März.ods"
    path.write_bytes(os.urandom(3 * MEGABYTE))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def taken(served: Served, folder: Path) -> dict[str, object]:
    there = served.folder / "globex"
    found = run_json("inbox", "take", "--output", folder, "-c", there)["messages"]
    assert len(found) == 1
    return dict(found[0])


def test_a_large_file_goes_through_the_control_sockets_of_both(
    served: Served, large: Path, tmp_path: Path
) -> None:
    acme = served.folder / "acme"
    sent = run_json("send", large, "--to", "globex", "--wait", "-c", acme)["messages"][0]
    assert sent["state"] == "delivered"
    # At each side it is one file, and nothing of it is in the database.
    for side in ("acme", "globex"):
        # A copy that comes meanwhile, on a slow machine, has a file of its own until it is known.
        (file,) = (served.folder / side / "data" / "spool").glob("?" * 64)
        assert 3 * MEGABYTE <= file.stat().st_size < 3 * MEGABYTE + 16_384
    shown = run_json("show", sent["message_id"], "-c", served.folder / "globex")
    assert shown["documents"] == [
        {
            "file_name": large.name,
            "media_type": KIND,
            "bytes": 3 * MEGABYTE,
            "sha256": digest(large),
        }
    ]
    assert run_json("show", sent["message_id"], "-c", acme)["documents"] == shown["documents"]
    files = taken(served, tmp_path / "out")["files"]
    assert isinstance(files, list)
    path = Path(files[0])
    assert path.name.endswith(f".1.{large.name}")
    assert digest(path) == digest(large)


def test_of_a_document_that_failed_it_is_said_which_part_did_and_why(
    pair: Path, large: Path
) -> None:
    """The document's own journal has no more than that a part failed."""
    split = {"payload.max_size": "2_000_000", "wire.extensions": '["split"]'}
    for name, other, more in (
        ("acme", "globex", {}),
        ("globex", "acme", {"payload.max_document": "2_500_000"}),
    ):
        path = pair / name / "agreements" / f"{other}.toml"
        path.write_text(with_values(path.read_text(), split | more))
    with Served(pair, "acme", "globex"):
        acme = pair / "acme"
        sent = run_json("send", large, "--to", "globex", "--wait", "-c", acme, exit_code=1)
        (message,) = sent["messages"]
        why = run_json("why", message["message_id"], "-c", acme)["why"]
    assert message["state"] == "not_delivered"
    assert "of 2: " in why
    assert "max_document" in why


KIND = "application/vnd.oasis.opendocument.spreadsheet"


@pytest.mark.process
def test_standard_input_is_a_document(served: Served, large: Path, tmp_path: Path) -> None:
    """Nobody knows how long it is before it ends."""
    command = [sys.executable, "-m", "oncewire", "send", "-", "--to", "globex"]
    with (
        large.open("rb") as file,
        subprocess.Popen(
            [*command, "--wait", "-c", str(served.folder / "acme")],
            stdin=file,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        assert process.wait(60) == 0
    files = taken(served, tmp_path / "out")["files"]
    assert isinstance(files, list)
    assert digest(Path(files[0])) == digest(large)
    run("send", "-", "-", "--to", "globex", "-c", served.folder / "acme", exit_code=2)


def test_a_program_gives_paths_and_files_and_reads_what_it_takes(
    served: Served, large: Path
) -> None:
    with (
        open_party_blocking(served.folder / "acme") as acme,
        open_party_blocking(served.folder / "globex") as globex,
        large.open("rb") as file,
    ):
        sent = acme.send("globex", large, file, io.BytesIO(b"small"))
        assert acme.wait(sent.message_id, timeout=30) == "delivered"
        (message,) = globex.take()
        found = []
        for payload in message.payloads:
            with payload.open() as opened:
                found.append(hashlib.file_digest(opened, "sha256").hexdigest())
            assert payload.digest == found[-1]
        small = hashlib.sha256(b"small").hexdigest()
        assert found == [digest(large), digest(large), small]
        assert [payload.file_name for payload in message.payloads] == [large.name, large.name, ""]
        # Whoever wants all of it at once has it too, and it can be sent on as it is.
        assert message.payloads[0].data == large.read_bytes()
        on = globex.submit(message.response("Onward", message.payloads[0]))
        assert globex.wait(on.message_id, timeout=30) == "delivered"
        globex.confirm(message)
        (back,) = acme.take()
        assert back.payloads[0].digest == digest(large)
        acme.confirm(back)


def test_an_open_file_is_read_once(served: Served, large: Path) -> None:
    with open_party_blocking(served.folder / "acme") as acme:
        with pytest.raises(NotHere, match="there is no file"):
            acme.send("globex", Path("/nowhere/order.xml"))
        with large.open("r", encoding="latin-1") as text, pytest.raises(InvalidValue, match="text"):
            acme.send("globex", text)  # type: ignore[arg-type]


async def test_what_is_cut_off_on_the_socket_leaves_nothing(served: Served, large: Path) -> None:
    settings = load(served.folder / "acme", environ={}).settings
    spool = settings.path(settings.store.spool)
    remote = await Remote.connect(socket_path(settings))
    assert remote is not None
    _, writer = remote._idle.pop()
    line = b'{"oncewire": 3, "verb": "send", "arguments": {}, "bytes": [null]}\n'
    piece = large.read_bytes()[:MEGABYTE]
    writer.write(line + 2 * (len(piece).to_bytes(4) + piece))
    await writer.drain()
    await until(lambda: list(spool.glob("*.part")))
    writer.transport.abort()
    await until(lambda: list(spool.iterdir()) == [])
