"""Evidence: of signed exchanges exactly those with a defect are not proven, and it says which."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from msgspec.structs import replace

from oncewire.errors import SecurityFailure
from oncewire.pipeline.judging import evidence
from oncewire.pipeline.judging.evidence import Signers, prove_archive
from oncewire.pipeline.lake.lake import Lake
from tests.entry.terminal import run_json
from tests.pipeline.books import lake_of, small_year
from tests.pipeline.exchanges import PARTIES, Exchange, exchanges, write_bundles
from tests.wire.security.keys import issue

GOOD = 240
DEFECTS = {
    "digest of a document": "was changed: its digest is not the signed one",
    "digest in the acknowledgement": "changed",
    "receipt of another": "The acknowledgment's digest of ",
    "certificate that has expired": "has expired",
    "certificate that nobody knows": "a certificate that the agreement does not name",
    "wrong signer": "a certificate that the agreement does not name",
    "no acknowledgement": "There is no acknowledgement.",
    "no message": "The message itself is not here.",
    "two contents": "There are two messages of this id",
}
"""What is planted, each five times, and what the table says of it."""
EACH = 5
MANY = 100_000

EXPIRED = issue("beta", "rsa", start=datetime(2025, 1, 1, tzinfo=UTC), days=30)
STRANGER = issue("stranger", "rsa")
SIGNERS = {
    "certificate that has expired": EXPIRED,
    "certificate that nobody knows": STRANGER,
    "wrong signer": PARTIES["urn:test:alpha"],
}


def certificates() -> Signers:
    known = {party: (who.certificate_pem,) for party, who in PARTIES.items()}
    known["urn:test:beta"] += (EXPIRED.certificate_pem,)
    return Signers(known)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """An archive, and the defect of each message that has one."""
    folder = tmp_path_factory.mktemp("archive")
    for each in exchanges(range(1, GOOD + 1)):
        each.write(folder)
    defects: dict[str, str] = {}
    for number, defect in enumerate(DEFECTS, 1):
        numbers = range(1_000 * number, 1_000 * number + EACH)
        for each in exchanges(numbers, SIGNERS.get(defect)):
            spoil(each, defect, folder)
            defects[each.message_id] = defect
    return folder, defects


def spoil(each: Exchange, defect: str, folder: Path) -> None:
    """Write an exchange with a defect."""
    if defect == "digest of a document":
        body = each.message.body.replace(b"order ", b"0rder ")
        assert body != each.message.body
        each = each._replace(message=replace(each.message, body=body))
    elif defect == "digest in the acknowledgement":
        begin = each.answer.body.index(b"DigestValue>") + len(b"DigestValue>")
        spoiled = b"B" if each.answer.body[begin : begin + 1] != b"B" else b"C"
        body = each.answer.body[:begin] + spoiled + each.answer.body[begin + 1 :]
        each = each._replace(answer=replace(each.answer, body=body))
    elif defect in ("receipt of another", "two contents"):
        # The same id with another content, each signed for by itself.
        (twin,) = exchanges_of(each.message_id)
        if defect == "two contents":
            twin._replace(message_id=f"{each.message_id}.twin").write(folder)
        else:
            each = each._replace(message=twin.message)
    each.write(folder)
    if defect in ("no acknowledgement", "no message"):
        kind = "answer" if defect == "no acknowledgement" else "message"
        (folder / f"{each.message_id}.{kind}.mime").unlink()


def exchanges_of(message_id: str) -> list[Exchange]:
    """The order of that id in another world, with another content."""
    number = int(message_id.partition("-")[2].partition("@")[0])
    return list(exchanges([number], data=b"something else"))


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lake_of(spark, tmp_path_factory.mktemp("evidence"), small_year(20, 7)[1])


def test_exactly_the_planted_defects_are_found_and_by_tasks(
    spark: Any, lake: Lake, planted: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(*_: object) -> None:
        raise SecurityFailure("the driver verifies nothing")

    monkeypatch.setattr(evidence, "check_receipt", here)
    folder, defects = planted
    said = prove_archive(spark, lake, [folder], certificates())
    rows = DeltaTable(str(lake.root / "gold/evidence")).to_pyarrow_table().to_pylist()
    assert len(rows) == said.messages == GOOD + len(defects)
    assert len(defects) == EACH * len(DEFECTS)
    assert said.proven == GOOD
    assert {row["message_id"] for row in rows if not row["proven"]} == defects.keys()
    for row in rows:
        defect = defects.get(row["message_id"])
        if defect is not None:
            assert DEFECTS[defect] in row["problem"], (defect, row["problem"])
            continue
        assert row["problem"] is None
        assert row["signer"] == "CN=mallory"
        assert [len(digest) for digest in row["document_digests"]] == [64]
        assert row["ack_message_id"]
        assert row["acknowledged_at"] is not None


def test_the_command_says_how_much_is_proven(
    spark: Any, lake: Lake, planted: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    words: list[str | Path] = ["--archive", planted[0]]
    for number, (party, who) in enumerate(PARTIES.items()):
        (tmp_path / f"{number}.pem").write_bytes(who.certificate_pem)
        words += ["--certificate", f"{party}={tmp_path / f'{number}.pem'}"]
    said = run_json("pipeline", "evidence", "--lake", lake.root, *words, exit_code=1)
    assert (said["proven"], said["messages"]) == (GOOD, GOOD + EACH * len(DEFECTS))
    bad = run_json(
        *("pipeline", "evidence", "--lake", lake.root, "--archive", planted[0]),
        *("--certificate", "acme.pem"),
        exit_code=2,
    )
    assert "PARTY=FILE" in bad["problems"][0]["next"]


@pytest.mark.soak
def test_fifty_defects_among_a_hundred_thousand_exchanges_are_found(
    spark: Any, lake: Lake, tmp_path: Path
) -> None:
    wanted = ("digest of a document", "certificate that has expired", "wrong signer",
              "no acknowledgement", "no message")  # fmt: skip
    bundles, folder = tmp_path / "bundles", tmp_path / "defects"
    bundles.mkdir()
    folder.mkdir()
    write_bundles(spark, bundles, MANY - 50)
    defects: dict[str, str] = {}
    for number, defect in enumerate(wanted, 1):
        first = 1_000_000 * number
        for each in exchanges(range(first, first + 10), SIGNERS.get(defect)):
            spoil(each, defect, folder)
            defects[each.message_id] = defect
    began = time.perf_counter()
    said = prove_archive(spark, lake, [bundles, folder], certificates())
    print(
        f"{said.messages:,} messages, {said.proven:,} proven: {time.perf_counter() - began:.0f} s"
    )
    assert (said.messages, said.proven) == (MANY, MANY - 50)
    table = DeltaTable(str(lake.root / "gold/evidence")).to_pyarrow_table(
        columns=["message_id", "proven", "problem"]
    )
    found = {row["message_id"]: row["problem"] for row in table.to_pylist() if not row["proven"]}
    assert found.keys() == defects.keys()
    for message_id, defect in defects.items():
        assert DEFECTS[defect] in found[message_id]
