"""One model, two forms: whatever the table says, the JSON says; errors say what to do next."""

import json
import shlex
from enum import StrEnum
from pathlib import Path

import pytest
import typer
from rich.console import Console

from oncewire import errors
from oncewire.entry.cli import output
from oncewire.entry.cli.output import Listing, Problem, Report
from oncewire.errors import NotHere


class Colour(StrEnum):
    RED = "red"


REPORT = Report(
    {"cpa_id": "a-b", "ok_so_far": True, "colour": Colour.RED, "nothing": None, "many": (1, 2)},
    (Listing("rows", ("name", "size"), [("one", 1), ("[bold]two", None)]),),
    (Problem("it broke", "line 3", "mend it", "Inconsistent"),),
    "Two rows.",
    ("oncewire next",),
    output.WRONG,
)


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(REPORT, json=True)
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "cpa_id": "a-b",
        "ok_so_far": True,
        "colour": "red",
        "nothing": None,
        "many": [1, 2],
        "rows": [{"name": "one", "size": 1}, {"name": "[bold]two", "size": None}],
        "problems": [
            {
                "problem": "it broke",
                "where": "line 3",
                "next": "mend it",
                "code": "Inconsistent",
            }
        ],
        "summary": "Two rows.",
        "next": ["oncewire next"],
    }


def test_a_summary_is_not_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(Report(summary="attempt 1 failed: [errno 111] refused"))
    assert "failed: [errno 111] refused" in capsys.readouterr().out


@pytest.mark.parametrize("obeyed", ["\x1b[2J", "\x9b2J", "\x07", "\u202e"])
def test_no_text_of_others_is_obeyed_by_the_terminal(
    obeyed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"a{obeyed}b"
    problem = Problem(said, said, said, said)
    output.show(
        Report(
            facts={"fact": said},
            listings=(Listing("list", ("what", "message_id"), [(said, said)], said),),
            problems=(problem,),
            summary=said,
            hints=(said,),
        )
    )
    with pytest.raises(typer.Exit):
        output.fail(errors.InvalidValue(said, remedy=said))
    shown = "".join(capsys.readouterr())
    assert obeyed[0] not in shown
    assert shown.count("a?") == 12
    output.show(Report(facts={"fact": said}), json=True)
    shown = capsys.readouterr().out
    assert obeyed[0] not in shown
    assert json.loads(shown)["fact"] == said, "programs get it whole"


def test_a_fingerprint_is_read_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Between its colons stand what others take for names of pictures."""
    fingerprint = "07:22:AB:79:100:ID"
    problem = Problem(f"{fingerprint} is not theirs", next=f"is {fingerprint} yours?")
    output.show(Report(summary=fingerprint, hints=(fingerprint,), problems=(problem,)))
    said = capsys.readouterr()
    assert (said.out + said.err).count(fingerprint) == 4


def test_the_table_holds_everything_too(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(REPORT)
    out = capsys.readouterr().out
    for word in ("cpa id", "a-b", "yes", "red", "1, 2", "one", "[bold]two", "it broke", "line 3"):
        assert word in out
    for word in ("mend it", "Inconsistent", "Two rows.", "next: oncewire next"):
        assert word in out
    # No colour where nobody watches, and markup of strangers is only text.
    assert "\x1b[" not in out


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def write(self, _: str) -> int:
            return 0

        def flush(self) -> None: ...

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.console(Terminal()).no_color is False  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.console(Terminal()).no_color is True  # type: ignore[arg-type]


def test_an_empty_listing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(listings=(Listing("rows", ("a",), [], empty="Nothing yet."),))
    output.show(report)
    assert "Nothing yet." in capsys.readouterr().out
    assert report.as_dict() == {"ok": True, "rows": []}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidValue("x"), 2),
        (errors.AgreementProblem("x"), 2),
        (errors.Inconsistent("x"), 2),
        (errors.SoapFault("Client", "x"), 2),
        (errors.JournalProblem("x"), 2),
        (errors.UnknownMessage("x"), 3),
        (NotHere("x"), 3),
        (errors.NotAllowed("x"), 4),
        (errors.StoreProblem("x"), 5),
        (errors.StoreFull("x"), 5),
        (errors.TransportProblem("x"), 5),
    ],
)
def test_every_error_has_its_documented_code(error: errors.OncewireError, code: int) -> None:
    assert output.exit_code_of(error) == code


def test_an_error_says_what_where_and_next(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.AgreementProblem("retries is negative", key="delivery.retries", remedy="write 3")

    def work() -> Report:
        raise error

    with pytest.raises(typer.Exit) as caught:
        output.answer(work)
    assert caught.value.exit_code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "error: retries is negative",
        "  where: delivery.retries",
        "  next:  write 3",
    ]
    with pytest.raises(typer.Exit):
        output.answer(work, json=True)
    body = json.loads(capsys.readouterr().out)
    assert body["ok"] is False
    assert body["problems"][0] == {
        "problem": "retries is negative",
        "where": "delivery.retries",
        "next": "write 3",
    }


def test_a_report_that_is_wrong_ends_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught:
        output.answer(lambda: REPORT)
    assert caught.value.exit_code == 1
    output.answer(lambda: Report(text="bare text"))
    assert capsys.readouterr().out.endswith("bare text\n")


def test_an_interruption_has_its_own_code() -> None:
    def work() -> Report:
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as caught:
        output.answer(work)
    assert caught.value.exit_code == 130


def test_ebxml_errors_carry_code_and_location() -> None:
    problem = output.problem_of(errors.Inconsistent("no", location="//Header"))
    assert (problem.code, problem.where) == ("Inconsistent", "//Header")
    assert output.problem_of(errors.SoapFault("Client", "no")).code == "Client"
    assert output.problem_of(errors.InvalidValue("no"), "here").where == "here"


def test_progress_is_silent_when_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("counting", 3) as advance:
        advance(1)
        advance(2)
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""


def test_paths_are_shown_as_they_would_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert output.here(tmp_path / "a" / "b") == "a/b"
    assert output.here(Path("/elsewhere/x")) == "/elsewhere/x"
    assert output.here(tmp_path) == str(tmp_path)


def test_plain_values() -> None:
    assert output.plain(b"\x01\x02") == "0102"
    assert output.plain({"a": (Colour.RED, Path("x"))}) == {"a": ["red", "x"]}


ID = "d0a1b2c3-0000-4444-8888-0123456789ab@a-long-name.example.org"
MESSAGES = Report(
    listings=(
        Listing("messages", ("submitted", "message_id", "to", "state"), [("now", ID, "b", "sent")]),
    )
)


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_an_id_is_never_broken(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    output.show(MESSAGES, json=False)
    told = capsys.readouterr().out
    assert ID in told
    assert "submitted" in told
    assert "[" not in told


def test_a_path_is_typed_as_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "with space", "it's", "$HOME", "-c"):
        assert shlex.split(output.typed(tmp_path / name)) == [name]


def test_no_word_breaks_inside_its_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """A table that would have to break words is shown line by line, and facts never wrap."""
    fingerprint = ":".join(["AB"] * 32)
    columns = ("key", "sentence", "fix")
    rows = [("delivery.nonsense", "there is no such key", "did you mean delivery.on_exhausted?")]
    for width in (30, 60, 80, 200):
        out = Console(width=width)
        output._show_listing(out, Listing("findings", columns, rows))
        output._show_facts(out, {"fingerprint": fingerprint})
        text = capsys.readouterr().out
        assert all(word in text for word in ("delivery.nonsense", "delivery.on_exhausted?"))
        assert fingerprint in text
