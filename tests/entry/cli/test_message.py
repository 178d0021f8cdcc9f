"""`message decode`, `message build` and `replay`, on our own messages and on others'."""

import json
import zipfile
from pathlib import Path

import pytest

from oncewire.entry.cli import output
from tests.entry.terminal import process, run, run_json

PARTIES = ("--from", "urn:a:acme", "--to", "urn:b|globex", "--cpa-id", "a-b")


# --- build and decode --------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["ebms2", "ms-0.9x", "rm-0.78"])
def test_what_is_built_is_decoded(order: Path, tmp_path: Path, dialect: str) -> None:
    file = tmp_path / "m.mime"
    words = ("--ack", "unsigned", "--once", "--sequence", "3", "--dialect", dialect)
    more = ("--message-id", "m-1@x", "--conversation", "c-1", "--action", "Buy")
    built = run_json("message", "build", "-o", file, "-p", order, *PARTIES, *words, *more)
    assert built["message_id"] == "m-1@x"
    found = run_json("message", "decode", file)
    assert found["dialect"] == dialect
    assert found["message_id"] == "m-1@x"
    assert found["conversation_id"] == "c-1"
    assert found["from"]["ids"] == [{"value": "urn:a:acme", "type": None}]
    assert found["to"]["ids"][0]["value"] == "globex"
    assert found["action"] == "Buy"
    assert found["reliable"] is True
    assert found["sequence"]["number"] == 3
    assert found["parts"][0]["size"] == order.stat().st_size
    text = run("message", "decode", file).stdout
    for word in ("m-1@x", "urn:a:acme", "globex", "Buy", found["parts"][0]["sha256"][:20]):
        assert word in text


def test_every_option_of_build_reaches_the_message(order: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.mime"
    words = ("--ref-to", "m-0@x", "--time-to-live", "PT5M", "--sync", "--ack", "signed")
    payloads = ("-p", f"{order};application/vnd.x+xml", "-p", str(order))
    service = ("--service", "urn:kind|orders")
    run("message", "build", "-o", file, *payloads, *PARTIES, *words, *service)
    found = run_json("message", "decode", file)
    assert found["ref_to_message_id"] == "m-0@x"
    assert found["time_to_live"] is not None
    assert found["sync_reply"] == "as agreed"
    assert found["ack_requested"] == [{"actor": "toPartyMSH", "signed": True}]
    assert found["service"] == {"value": "orders", "type": "urn:kind"}
    assert [part["media_type"] for part in found["parts"]] == [
        "application/vnd.x+xml",
        "application/xml",
    ]


def test_build_under_an_agreement_and_signed(parties: Path, order: Path, tmp_path: Path) -> None:
    run("partner", "add", parties / "globex", "--insecure")
    file = tmp_path / "m.mime"
    keys = ("--certificate", "keys/acme.crt", "--key", "keys/acme.key")
    run("message", "build", "-o", file, "-p", order, "-a", "agreements/globex.toml", *keys)
    found = run_json("message", "decode", file)
    assert found["cpa_id"] == "acme-globex"
    assert found["from"]["ids"][0]["value"] == "urn:oncewire:party:acme"
    assert found["ack_requested"]
    assert found["duplicate_elimination"] is True
    assert found["signature"] == "intact"
    good = run_json("message", "decode", file, "--certificate", "keys/acme.crt")
    assert good["signature"] == "good"
    bad = run_json("message", "decode", file, "--certificate", "keys/partners/globex.crt")
    assert bad["signature"].startswith("bad: ")
    broken = tmp_path / "broken.mime"
    broken.write_bytes(file.read_bytes().replace(b'id="7"', b'id="8"'))
    assert run_json("message", "decode", broken)["signature"] == "broken"


def test_a_party_of_ebms2_needs_no_name_of_a_hop(tmp_path: Path) -> None:
    """The drafts write one, of the PartyId and more; there it may be too long."""
    file, longest = tmp_path / "m.mime", "a" * 255
    words = ("-o", file, "--from", f"urn:a|{longest}", "--to", "urn:b", "--cpa-id", "a-b")
    run("message", "build", *words)
    assert run_json("message", "decode", file)["from"]["ids"][0]["value"] == longest


def test_bare_bodies_are_read_too(order: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.bin"
    run("message", "build", "-o", file, "-p", order, *PARTIES, "--bare")
    assert run_json("message", "decode", file)["recorded_as"] == "multipart"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "who sends to whom"),
        ((*PARTIES, "--dialect", "ebms3"), "--dialect"),
        ((*PARTIES, "--ack", "maybe"), "--ack"),
        ((*PARTIES, "--time-to-live", "soon"), "not a duration"),
        ((*PARTIES, "--certificate", "x"), "needs both"),
        ((*PARTIES, "--action", "a\nb"), "control character"),
    ],
)
def test_bad_options_of_build_are_named(
    tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    file = tmp_path / "m.mime"
    found = run_json("message", "build", "-o", file, *words, exit_code=output.BAD_INPUT)
    assert sentence in found["problems"][0]["problem"]
    assert found["problems"][0]["next"]
    assert not file.exists()


def test_a_payload_that_is_not_there(tmp_path: Path) -> None:
    words = ("-o", tmp_path / "m", "-p", tmp_path / "none.xml", *PARTIES)
    found = run_json("message", "build", *words, exit_code=output.NOT_FOUND)
    assert "none.xml" in found["problems"][0]["problem"]


# --- decode: others' messages and faults -------------------------------------------------------


def test_a_fault_is_the_error_it_would_be_answered_with(corpus: Path) -> None:
    file = corpus / "hermes" / "msg" / "test4.msg"
    found = run_json("message", "decode", file, exit_code=output.BAD_INPUT)
    assert found["fault"]["code"] == "Inconsistent"
    assert found["fault"]["severity"] == "Error"
    assert found["fault"]["location"].endswith("MessageData/TimeToLive")
    assert found["answered_with"] == "ErrorList"
    text = run("message", "decode", file, exit_code=output.BAD_INPUT).stdout
    assert "It would be answered with ErrorList: Inconsistent (Error)" in text


def test_a_good_message_of_another_handler(corpus: Path) -> None:
    found = run_json("message", "decode", corpus / "hermes" / "msg" / "test2.msg")
    assert found["dialect"] == "ebms2"
    assert found["parts"]


@pytest.mark.long
def test_every_corpus_file_is_decoded_or_refused_in_words(corpus: Path) -> None:
    endings = {".xml", ".msg", ".eml", ".mime", ".ebxml", ".http"}
    files = [path for path in sorted(corpus.rglob("*")) if path.suffix in endings]
    assert len(files) > 20
    for file in files:
        found = run_json("message", "decode", file, exit_code=None)
        assert found["ok"] is not ("fault" in found), file
        if "fault" in found:
            assert found["fault"]["message"], file


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"plain words", b"<a/>", b"<!DOCTYPE x [<!ENTITY e 'x'>]><a/>", b"\xff\xfe"],
)
def test_anything_else_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)
    found = run_json("message", "decode", file, exit_code=output.BAD_INPUT)
    assert found["fault"]["message"]


def test_validation_is_chosen(corpus: Path) -> None:
    file = corpus / "hermes" / "msg" / "test2.msg"
    for level in ("enforce", "report", "off"):
        run_json("message", "decode", file, "--validation", level)
    bad = run_json("message", "decode", file, "--validation", "maybe", exit_code=2)
    assert "enforce" in bad["problems"][0]["next"]


@pytest.mark.process
def test_decode_as_a_real_process_from_a_file_and_from_stdin(corpus: Path, tmp_path: Path) -> None:
    file = corpus / "hermes" / "msg" / "test2.msg"
    ended = process("message", "decode", file, "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["dialect"] == "ebms2"
    missing = process("message", "decode", "none.xml", cwd=tmp_path)
    assert missing.returncode == output.NOT_FOUND
    assert missing.stderr.startswith("error: message: there is no file none.xml")
    import subprocess
    import sys

    piped = subprocess.run(
        [sys.executable, "-m", "oncewire", "message", "decode", "-", "--json"],
        input=file.read_bytes(),
        capture_output=True,
        check=False,
    )
    assert piped.returncode == 0
    assert json.loads(piped.stdout)["message_id"]


# --- replay ------------------------------------------------------------------------------------


def http(parcel_file: Path) -> bytes:
    return b"POST /msh HTTP/1.1\r\nHost: x\r\n" + parcel_file.read_bytes()


@pytest.fixture
def recorded(order: Path, tmp_path: Path) -> Path:
    """Three exchanges: one answered as we would, one not at all, one that is garbage."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    best, asked = tmp_path / "best.mime", tmp_path / "asked.mime"
    run("message", "build", "-o", best, "-p", order, *PARTIES)
    run("message", "build", "-o", asked, "-p", order, *PARTIES, "--ack", "unsigned")
    (folder / "1.request.http").write_bytes(http(best))
    (folder / "1.response.http").write_bytes(b"HTTP/1.1 204 No Content\r\n\r\n")
    (folder / "2.request.http").write_bytes(http(asked))
    (folder / "2.response.http").write_bytes(b"HTTP/1.1 200 OK\r\n\r\n")
    (folder / "3.request.http").write_bytes(b"garbage")
    return folder


def test_replay_lists_where_answers_part(recorded: Path) -> None:
    found = run_json("replay", recorded, exit_code=output.WRONG)
    assert found["exchanges"] == 3
    parted = {row["exchange"]: row for row in found["differences"]}
    assert parted["2.request.http"]["field"] == "answer"
    assert parted["2.request.http"]["theirs"] == "nothing"
    assert parted["2.request.http"]["ours"] == "message"
    assert "1.request.http" not in parted
    rows = {
        row["exchange"]: row
        for row in run_json("replay", recorded, "--all", exit_code=1)["compared"]
    }
    assert set(rows) == {"1.request.http", "2.request.http", "3.request.http"}
    assert rows["3.request.http"]["note"]
    assert "answers are the same" in run("replay", recorded, exit_code=output.WRONG).stdout


def test_replay_of_a_zip_without_differences(recorded: Path, tmp_path: Path) -> None:
    place = tmp_path / "good.zip"
    with zipfile.ZipFile(place, "w") as made:
        for name in ("1.request.http", "1.response.http"):
            made.write(recorded / name, name)
    found = run_json("replay", place)
    assert (found["exchanges"], found["differing"]) == (1, 0)
    assert found["summary"] == "1 of 1 answers are the same."


def test_replay_of_nothing(tmp_path: Path) -> None:
    run_json("replay", tmp_path / "none", exit_code=output.NOT_FOUND)
