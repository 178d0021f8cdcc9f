"""Party folders that tests may change, made once and copied: RSA keys take a second each."""

import shutil
from pathlib import Path

import pytest

from oncewire.entry.keys import KeyKind
from oncewire.entry.party import make_party
from oncewire.handler.world import RealWorld


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
