"""Party folders that tests may change, made once and copied: RSA keys take a second each."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.entry.party.folder import KeyKind, make_party, read_card
from oncewire.entry.party.partners import PartnerOptions, add_partner, with_values
from oncewire.entry.party.settings import load
from oncewire.handler.world import RealWorld
from tests.entry.served import Served
from tests.ports import free_port


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that ran in this process may have sent the log to a stream that is gone now."""
    root = logging.getLogger("oncewire")
    handlers, level, propagate = list(root.handlers), root.level, root.propagate
    raised = logging.raiseExceptions
    yield
    root.handlers[:] = handlers
    root.level, root.propagate, logging.raiseExceptions = level, propagate, raised


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two parties nobody changes."""
    folder = tmp_path_factory.mktemp("parties")
    for name, port in (("acme", 8601), ("globex", 8602)):
        make_party(folder / name, name, now=RealWorld().now(), port=port, key_kind=KeyKind.EC)
    return folder


@pytest.fixture
def parties(pattern: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the parties acme and globex; the test stands in acme."""
    folder = tmp_path / "parties"
    shutil.copytree(pattern, folder)
    monkeypatch.chdir(folder / "acme")
    for variable in ("ONCEWIRE_CONFIG", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    return folder


@pytest.fixture
def pair(parties: Path) -> Path:
    """The same two as partners, on free ports and with short timers; the test stands in acme."""
    return made_partners(parties)


def made_partners(parties: Path) -> Path:
    """Make acme and globex of a folder partners of each other."""
    change = {
        "delivery.timeout": '"PT0.5S"',
        "delivery.retry_interval": '"PT0.5S"',
        "delivery.retries": "3",
    }
    for name in ("acme", "globex"):
        file = parties / name / "oncewire.toml"
        file.write_text(with_values(file.read_text(), {"http.port": str(free_port())}))
    for own, partner in (("acme", "globex"), ("globex", "acme")):
        settings = load(parties / own, environ={}).settings
        added = add_partner(settings, read_card(parties / partner), PartnerOptions())
        added.agreement.write_text(with_values(added.agreement.read_text(), change))
    return parties


def agree(pair: Path, values: dict[str, str], *sides: str) -> None:
    """Change what acme and globex agreed, or what only one of them has of it."""
    for own, partner in (("acme", "globex"), ("globex", "acme")):
        if own in (sides or (own,)):
            file = pair / own / "agreements" / f"{partner}.toml"
            file.write_text(with_values(file.read_text(), values))


@pytest.fixture
def order(tmp_path: Path) -> Path:
    """The file of an order."""
    file = tmp_path / "order.xml"
    file.write_text('<order id="7"/>')
    return file


@pytest.fixture
def served(pair: Path) -> Iterator[Served]:
    """Both handlers run."""
    with Served(pair, "acme", "globex") as found:
        yield found
