"""Parts that a test needs and a machine may lack: the corpus, Java for Spark, a database server.

On a user's machine a missing part is a skip with its reason. On a build server (`CI=true`) it is a
failure, because a skip there would let a whole part go untested without anybody noticing.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parent.parent


@cache
def script(name: str) -> ModuleType:
    """A module of `scripts/`, by its name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its own module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def missing(reason: str) -> NoReturn:
    """End the test: failed on a build server, skipped elsewhere, with the reason either way."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"missing part: {reason}", pytrace=False)
    pytest.skip(reason)


def find_corpus(environ: Mapping[str, str], root: Path) -> Path | None:
    """The folder of sample messages: ONCEWIRE_CORPUS, else beside the checkout, else None."""
    named = environ.get("ONCEWIRE_CORPUS")
    folder = Path(named) if named else root.parent / "shared" / "corpus"
    return folder if (folder / "INDEX.md").is_file() else None
