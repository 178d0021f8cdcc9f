"""`make hooks` has git run `make check` before a commit, and leaves other people's hooks alone."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.parts import ROOT, missing

pytestmark = pytest.mark.process

INSTALL = ROOT / "scripts" / "install-hooks.sh"


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in the folder, with a git that knows nothing of this machine or of a hook."""
    told = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    told |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        told |= {f"GIT_{role}_NAME": "somebody", f"GIT_{role}_EMAIL": "somebody@example.org"}
    return subprocess.run(
        command, cwd=folder, env=told, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose `make check` fails while there is a file called `wrong`."""
    for part in ("git", "make", "bash"):
        if shutil.which(part) is None:
            missing(f"{part} is not installed")
    (tmp_path / "Makefile").write_text("check:\n\t@echo checked >>log; test ! -e wrong\n")
    (tmp_path / "inner").mkdir()
    assert _run(tmp_path, "git", "init", "-q").returncode == 0
    return tmp_path


def _commit(folder: Path) -> int:
    return _run(folder, "git", "commit", "-q", "--allow-empty", "-m", "a step").returncode


@pytest.mark.parametrize("where", [".", "inner"])
def test_a_commit_is_checked_first(checkout: Path, where: str) -> None:
    assert _run(checkout / where, "bash", str(INSTALL)).returncode == 0
    (checkout / "wrong").touch()
    assert _commit(checkout / where) != 0
    (checkout / "wrong").unlink()
    assert _commit(checkout / where) == 0
    assert (checkout / "log").read_text() == "checked\nchecked\n"


def test_installing_twice_is_the_same_as_once(checkout: Path) -> None:
    hook = checkout / ".git" / "hooks" / "pre-commit"
    assert _run(checkout, "bash", str(INSTALL)).returncode == 0
    first = hook.read_text()
    assert _run(checkout, "bash", str(INSTALL)).returncode == 0
    assert hook.read_text() == first
    assert os.access(hook, os.X_OK)


def test_the_folder_is_the_one_that_git_uses(checkout: Path) -> None:
    _run(checkout, "git", "config", "core.hooksPath", "inner/own")
    assert _run(checkout, "bash", str(INSTALL)).returncode == 0
    (checkout / "wrong").touch()
    assert (checkout / "inner" / "own" / "pre-commit").is_file()
    assert _commit(checkout) != 0


def test_another_hook_is_left_alone(checkout: Path) -> None:
    hook = checkout / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    told = _run(checkout, "bash", str(INSTALL))
    assert told.returncode == 1
    assert "left alone" in told.stderr
    assert hook.read_text() == "#!/bin/sh\nexit 0\n"


def test_make_hooks_runs_the_script() -> None:
    # Under `make test` it is a make within a make, which would say where it goes.
    shown = _run(ROOT, "make", "-n", "--no-print-directory", "hooks")
    assert shown.stdout.split() == ["bash", INSTALL.relative_to(ROOT).as_posix()]
