"""One year of business, and the files of the corpus."""

import json
from pathlib import Path

import pytest

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
