"""Commands that a sentence names, so that they find the party from here when they are pasted.

Errors come from where nobody knows how the party was named, or that a command line was there. What
a partner is to run is named without the quotes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from oncewire.entry.cli.place import given_place

if TYPE_CHECKING:
    from oncewire.entry.cli.output import Problem, Report

WITHOUT_PARTY = frozenset(
    {"init", "demo", "bench", "replay", "simulate", "version", "pipeline", "message decode",
     "message build", "agreement profiles"}
)  # fmt: skip
"""Commands that are about no party, or about those that are named otherwise."""

_COMMAND = re.compile(r"`oncewire ([^`]+)`")


def placed(sentence: str) -> str:
    """The sentence; a command in it gets the `-c` that this command was given."""
    place = given_place()
    return _COMMAND.sub(lambda found: _placed(found, place), sentence) if place else sentence


def _placed(found: re.Match[str], place: str) -> str:
    words = found[1].split()
    named = {words[0], " ".join(words[:2])}
    if named & WITHOUT_PARTY or {"-c", "--config", "..."} & set(words):
        return found[0]
    return f"`oncewire {found[1]}{place}`"


def problem_placed(problem: Problem) -> Problem:
    """The problem, its next step as it can be pasted."""
    return replace(problem, problem=placed(problem.problem), next=placed(problem.next))


def report_placed(report: Report) -> Report:
    """The report, its sentence and problems likewise; hints are made where the party is known."""
    problems = tuple(map(problem_placed, report.problems))
    listings = tuple(replace(each, empty=placed(each.empty)) for each in report.listings)
    return replace(report, summary=placed(report.summary), problems=problems, listings=listings)
