"""A message to itself goes through the endpoint, and nothing else does under that agreement."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncewire.entry.doctor.ping import Reached, ping
from oncewire.entry.party.partners import CPA_ID, agreement_with_itself, kept_itself
from oncewire.entry.party.settings import load
from oncewire.entry.running.open_party import open_party_blocking
from oncewire.errors import OncewireError
from oncewire.handler.actions import Submission
from oncewire.message.envelope import Payload
from oncewire.message.ids import Service
from tests.entry.served import Served
from tests.parts import ROOT


def test_a_ping_to_itself_is_answered_and_counts_nowhere(pair: Path, served: Served) -> None:
    settings = load(pair / "acme", environ={}).settings
    itself = kept_itself(settings)
    assert itself is not None
    (echo,) = asyncio.run(ping(settings, [itself]))
    assert echo.reached is Reached.ANSWERED
    with open_party_blocking(pair / "acme") as party:
        assert set(party.status().counts.values()) == {0}


def test_no_document_goes_under_it(pair: Path, served: Served) -> None:
    settings = load(pair / "acme", environ={}).settings
    agreement = agreement_with_itself(settings)
    assert agreement is not None
    assert agreement.listed_only
    submission = Submission(CPA_ID, Service("urn:x"), "New", (Payload.of("a", "text/plain", b"x"),))
    with open_party_blocking(pair / "acme") as party, pytest.raises(OncewireError):
        party.submit(submission)


def test_the_page_on_security_is_linked_and_names_real_commands() -> None:
    from oncewire.entry.cli.main import build

    text = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    assert "docs/explanation/security.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    import re

    import typer

    known = typer.main.get_command(build())
    for words in re.findall(r"`oncewire ([a-z]+)(?: ([a-z]+))?", text):
        command = known.commands[words[0]]  # type: ignore[attr-defined]
        if hasattr(command, "commands") and words[1]:
            assert words[1] in command.commands, words
