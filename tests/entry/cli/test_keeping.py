"""Legal holds, what is kept and what was removed, from the command line."""

import base64
import contextlib
import threading
from pathlib import Path

import apsw
import pytest

from oncewire.entry.cli import output
from oncewire.entry.control.verbs import user_name
from oncewire.entry.party.settings import load
from oncewire.entry.party.store import store_path
from oncewire.handler.runtime import retention
from oncewire.store.sqlite.store import SqliteStore
from tests.entry.conftest import agree
from tests.entry.served import Served
from tests.entry.terminal import process, run, run_json

YEARS_LATER = 32_503_680_000_000_000
"""The year 3000."""


@pytest.fixture
def delivered(served: Served, order: Path) -> str:
    """The MessageId of an order that arrived and was taken; both handlers run."""
    found = run_json("send", order, "--to", "globex", "--wait", "--timeout", "60")
    run("inbox", "take", "--output", served.folder / "in", "-c", served.folder / "globex")
    return str(found["messages"][0]["message_id"])


def sweep(folder: Path) -> int:
    """What retention removes of a party at rest when years have passed."""
    settings = load(folder, environ={}).settings
    store = SqliteStore(
        settings.path(settings.store.path), spool=settings.path(settings.store.spool)
    )
    with store.transition() as transaction:
        gone = transaction.sweep(YEARS_LATER, 100)
    store.commit()
    store.close()
    return gone


@pytest.mark.requirement("STO-8")
def test_a_hold_keeps_a_message_while_handlers_run_and_rest(served: Served, delivered: str) -> None:
    here, there = served.folder / "acme", served.folder / "globex"
    assert run_json("show", delivered)["legal_hold"] is False
    held = run_json("hold", delivered[:20])
    assert held["done"] == [{"what": delivered, "state": "delivered"}]
    assert held["summary"] == "Held."
    run("hold", delivered, "-c", there)
    assert run_json("show", delivered)["legal_hold"] is True
    assert "legal hold" in run("show", delivered, "-c", there).stdout
    assert f"put under legal hold by {user_name()}" in run("why", delivered).stdout
    for name in ("acme", "globex"):
        served.stop(name)
    assert sweep(here) == sweep(there) == 0
    # The same at rest; it takes effect at once.
    released = run_json("release", delivered)
    assert released["summary"] == "Released."
    assert run_json("show", delivered)["legal_hold"] is False
    assert (sweep(here), sweep(there)) == (1, 0)
    run("hold", delivered, exit_code=output.NOT_FOUND)
    assert "removed by retention" in run("hold", delivered, exit_code=output.NOT_FOUND).stderr
    run("release", delivered, "-c", there)
    assert run_json("inbox", "-c", there)["messages"][0]["state"] == "confirmed"
    assert sweep(there) == 1


def test_holds_are_refused_in_words(served: Served, delivered: str) -> None:
    assert delivered
    run("hold", "nobody-sent-this", exit_code=output.NOT_FOUND)
    run("hold", exit_code=output.BAD_INPUT)
    run("release", exit_code=output.BAD_INPUT)


def test_the_bytes_of_a_message_can_be_had_while_they_are_kept(
    served: Served, delivered: str, tmp_path: Path
) -> None:
    here, there = served.folder / "acme", served.folder / "globex"
    sent = run("show", delivered, "--raw").stdout_bytes
    assert sent.startswith(b"Content-Type: multipart/related")
    assert b'<order id="7"/>' in sent
    file = tmp_path / "message.eml"
    said = run_json("show", delivered, "--raw", "--output", file, "-c", there)
    assert said["file"] == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    # The same body at both ends, and a form that can be read again.
    body = sent.partition(b"\r\n\r\n")[2]
    assert file.read_bytes().partition(b"\r\n\r\n")[2] == body
    assert run_json("message", "decode", file)["message_id"] == delivered
    run("show", delivered, "--raw", "--output", file, exit_code=output.NOT_ALLOWED)
    coded = run_json("show", delivered, "--raw")
    assert base64.b64decode(coded["base64"]) == sent
    for name in ("acme", "globex"):
        served.stop(name)
    assert sweep(here) == sweep(there) == 1
    for folder in (here, there):
        said = run_json("show", delivered, "--raw", "-c", folder, exit_code=output.NOT_FOUND)
        assert "were removed by retention on " in said["problems"][0]["problem"]
        shown = run_json("show", delivered, "-c", folder)
        assert shown["removed"]
        assert shown["outcome"] == "delivered"
        assert "direction" not in shown


def test_a_large_message_is_read_from_the_spool(served: Served, tmp_path: Path) -> None:
    large = tmp_path / "drawing.bin"
    large.write_bytes(bytes(range(256)) * 8_000)
    found = run_json("send", large, "--to", "globex", "--wait", "--timeout", "60")
    message_id = found["messages"][0]["message_id"]
    for folder in (served.folder / "acme", served.folder / "globex"):
        file = tmp_path / f"{folder.name}.eml"
        run("show", message_id, "--raw", "-o", file, "-c", folder)
        assert large.read_bytes() in file.read_bytes()


@pytest.mark.parametrize(
    ("name", "table", "digest"),
    [("acme", "outgoing", True), ("globex", "incoming", True), ("globex", "incoming", False)],
)
def test_bytes_that_have_changed_are_not_handed_out(
    served: Served, delivered: str, tmp_path: Path, name: str, table: str, digest: bool
) -> None:
    folder, file = served.folder / name, tmp_path / "message.eml"
    served.stop(name)
    database = store_path(load(folder).settings)
    with contextlib.closing(apsw.Connection(str(database))) as connection:
        if not digest:
            # As of a partner who sends none.
            connection.execute(f"UPDATE {table}_bytes SET headers = '[]'")
        connection.execute(
            f"UPDATE {table}_bytes SET body = CAST(replace(body, 'id=\"7\"', 'id=\"8\"') AS BLOB)"
        )
    words = ("show", delivered, "--raw", "--output", file, "-c", folder)
    (said,) = run_json(*words, exit_code=output.TROUBLE)["problems"]
    assert said["problem"] == f"the stored bytes of message {delivered} have changed"
    assert not file.exists()


def test_a_file_of_the_spool_that_has_changed_is_not_handed_out(
    served: Served, tmp_path: Path
) -> None:
    large = tmp_path / "drawing.bin"
    large.write_bytes(bytes(range(256)) * 8_000)
    found = run_json("send", large, "--to", "globex", "--wait", "--timeout", "60")
    message_id = found["messages"][0]["message_id"]
    for name in ("acme", "globex"):
        settings = load(served.folder / name).settings
        for spooled in settings.path(settings.store.spool).iterdir():
            content = bytearray(spooled.read_bytes())
            content[len(content) // 2] ^= 1
            spooled.chmod(0o600)
            spooled.write_bytes(content)
        file = tmp_path / f"{name}.eml"
        words = ("show", message_id, "--raw", "--output", file, "-c", served.folder / name)
        (said,) = run_json(*words, exit_code=output.TROUBLE)["problems"]
        assert said["problem"].startswith("spool file ")
        assert said["problem"].endswith(" has changed")
        assert not file.exists()


@pytest.mark.process
def test_raw_bytes_reach_a_pipe_untouched(served: Served, delivered: str) -> None:
    done = process("show", delivered, "--raw", "-c", served.folder / "acme")
    assert done.returncode == 0
    assert done.stdout.startswith("Content-Type: multipart/related")
    assert done.stdout.endswith("--\n") or done.stdout.endswith("--")
    assert done.stderr == ""


def test_a_message_without_bytes_says_why(pair: Path, order: Path) -> None:
    agree(pair, {"sequence.ordered": "true", "sequence.scope": '"conversation"'}, "acme")
    words = ("send", order, "--to", "globex", "--conversation", "one")
    run_json(*words)
    # The first travels alone, so the second waits for its number.
    second = run_json(*words)["messages"][0]["message_id"]
    said = run_json("show", second, "--raw", exit_code=output.NOT_ALLOWED)
    assert "waits for its number" in said["problems"][0]["problem"]


def _retention() -> str:
    checks = run_json("doctor", "--no-partners", exit_code=None)["checks"]
    return next(str(one["finding"]) for one in checks if one["what"] == "retention")


def test_status_and_doctor_tell_what_is_kept(served: Served, delivered: str) -> None:
    found = run_json("status")
    assert (found["kept"], found["last_removed"]) == (1, "")
    assert _retention().startswith("1 message is kept; none was old enough")
    for name in ("acme", "globex"):
        served.stop(name)
    assert sweep(served.folder / "acme") == 1
    found = run_json("status")
    assert found["kept"] == 0
    assert found["last_removed"]
    assert _retention().startswith("0 messages are kept; some were last removed")
    assert delivered


def test_status_and_doctor_tell_what_strangers_sent(served: Served) -> None:
    """One agreement names the other side wrongly: it is refused, and counted."""
    agreement = served.folder / "acme" / "agreements" / "globex.toml"
    text = agreement.read_text()
    agreement.write_text(text.replace('cpa_id = "acme-globex"', 'cpa_id = "strange"'))
    run_json("ping", "globex", exit_code=output.WRONG)
    served.stop("globex")
    there = served.folder / "globex"
    found = run_json("status", "-c", there)
    assert found["strangers_refused"] == 1
    assert found["refused"][0]["code"] == "ValueNotRecognized"
    assert found["refused"][0]["address"] == "127.0.0.1"
    assert "ValueNotRecognized" in run("status", "-c", there).stdout
    checks = run_json("doctor", "--no-partners", "-c", there, exit_code=None)["checks"]
    said = next(str(one["finding"]) for one in checks if one["what"] == "strangers")
    assert said.startswith("1 message was refused, of strangers or not as agreed, the last on ")


@pytest.mark.long
@pytest.mark.requirement("STO-7")
def test_a_running_handler_removes_what_is_old(pair: Path, order: Path) -> None:
    """The whole way: agreement, handler, turns, store and journal."""
    short = {"delivery.persist_duration": '"PT2S"', "delivery.retries": "1"}
    agree(pair, short)
    with Served(pair, "globex") as served:
        node = served.start("acme").handler.engine.context
        assert node.now() < node.state.sweep_due_at <= node.now() + retention.FIRST_SWEEP
        found = run_json("send", order, "--to", "globex", "--wait", "--timeout", "60")
        message_id = found["messages"][0]["message_id"]
        pause = threading.Event()
        while not run_json("show", message_id)["removed"]:
            node.state.sweep_due_at = 0
            pause.wait(0.1)
        assert run_json("outbox")["messages"] == []
        assert run_json("verify")["ok"]
        run("send", order, "--to", "globex", "--message-id", message_id, exit_code=4)
