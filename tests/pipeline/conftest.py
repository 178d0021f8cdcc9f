"""One year of business, the files of the corpus, and an environment as executors have it."""

import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.parts import ROOT
from tests.pipeline.books import SEED, Year


@pytest.fixture(scope="session")
def year(spark, tmp_path_factory: pytest.TempPathFactory) -> Year:
    """Twelve thousand messages, written by Spark, and the answer key."""
    from oncewire.lab.sample_year.generate import generate
    from oncewire.pipeline.lake.lake import Lake

    folder = tmp_path_factory.mktemp("year")
    key = folder / "violations.json"
    made = generate(
        spark, Lake(folder / "lake"), messages=12_000, seed=SEED, violations=key, envelopes=200
    )
    planted = sorted(
        (one["kind"], one["message_id"]) for one in json.loads(key.read_text(encoding="utf-8"))
    )
    return Year(Lake(folder / "lake"), planted, made.rows)


@pytest.fixture(scope="session")
def corpus_files(corpus: Path) -> list[Path]:
    from oncewire.pipeline.sources.archive import MESSAGE_SUFFIXES

    return sorted(path for path in corpus.rglob("*") if path.suffix in MESSAGE_SUFFIXES)


# What `oncewire[spark]` needs to read and judge; no database, no server, no command line.
NEEDED = (
    "pyspark", "py4j", "pyarrow", "numpy", "numpy.libs", "pandas", "dateutil", "pytz", "six.py",
    "tzdata", "lxml", "msgspec", "cryptography", "cffi", "pycparser",
)  # fmt: skip


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second environment: the wheel, built now, and what an executor needs beside it."""
    folder = tmp_path_factory.mktemp("executor")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    python = folder / "env" / "bin" / "python"
    site = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()
    )  # fmt: skip
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    ours = Path(sysconfig.get_path("purelib"))
    for name in NEEDED:
        if (ours / name).exists():
            (site / name).symlink_to(ours / name)
    for library in ours.glob("_cffi_backend*"):
        (site / library.name).symlink_to(library)
    return python
