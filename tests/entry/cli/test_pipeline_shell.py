"""`pipeline shell` reads commands line by line, and goes on whatever becomes of one."""

import io

import pytest
import typer

from oncewire.entry.cli import output, pipeline


def read(monkeypatch: pytest.MonkeyPatch, text: str, *statuses: int) -> tuple[int, list[list[str]]]:
    """What it ends with, and the commands it ran."""
    ran: list[list[str]] = []

    def run(words: list[str]) -> None:
        ran.append(words)
        raise SystemExit(statuses[len(ran) - 1] if len(ran) <= len(statuses) else 0)

    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    with pytest.raises(typer.Exit) as ended:
        pipeline.read_commands(run)
    return ended.value.exit_code, ran


def test_it_runs_a_command_a_line_until_exit_or_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# a comment\n\nverify --lake 'my lake'\n"
    text += "oncewire pipeline sql 'SELECT 1' --lake l\nexit\nrun\n"
    status, ran = read(monkeypatch, text)
    assert status == output.OK
    assert ran == [["verify", "--lake", "my lake"], ["sql", "SELECT 1", "--lake", "l"]]


def test_one_that_fails_keeps_no_other_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    status, ran = read(monkeypatch, "verify --lake a\nverify --lake b\nverify --lake c", 0, 1, 4)
    assert status == output.WRONG
    assert len(ran) == 3


def test_a_line_that_cannot_be_read_is_told_and_passed_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, ran = read(monkeypatch, "verify --lake 'a\nshell\nverify --lake b\n")
    assert status == output.BAD_INPUT
    assert ran == [["verify", "--lake", "b"]]
    said = capsys.readouterr().err
    assert "close what is quoted" in said
    assert "this is a shell already" in said


def test_stages_are_lines_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with output.stages("starting Spark") as tell:
        tell("judging 1,000 rows of 2 nodes")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("] ")[2] for line in lines] == [
        "starting Spark", "judging 1,000 rows of 2 nodes", "done",
    ]  # fmt: skip
    with output.stages("starting Spark", quiet=True) as tell:
        tell("judging")
    assert capsys.readouterr().err == ""
