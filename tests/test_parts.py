"""A missing part must be seen: a skip with a reason for a user, a failure on a build server."""

import os
import subprocess
from pathlib import Path

import pytest

from oncewire.entry.cli.lake import find_java
from tests import java_archive, parts


def test_missing_part_is_a_skip_on_a_users_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no corpus"):
        parts.missing("no corpus")


def test_missing_part_is_a_failure_on_a_build_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no corpus"):
        parts.missing("no corpus")


def test_corpus_is_found_beside_the_checkout(tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "corpus"
    folder.mkdir(parents=True)
    (folder / "INDEX.md").write_text("samples")
    assert parts.find_corpus({}, tmp_path / "checkout") == folder


def test_corpus_named_by_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "INDEX.md").write_text("samples")
    found = parts.find_corpus({"ONCEWIRE_CORPUS": str(tmp_path)}, tmp_path / "elsewhere" / "x")
    assert found == tmp_path


def test_corpus_without_its_index_is_no_corpus(tmp_path: Path) -> None:
    assert parts.find_corpus({"ONCEWIRE_CORPUS": str(tmp_path)}, tmp_path) is None


def test_the_corpus_is_there(corpus: Path) -> None:
    # Without a test that asks, a build server with no corpus would stay green.
    assert (corpus / "INDEX.md").stat().st_size > 0


def test_spark_starts_and_runs_python_workers(spark) -> None:
    # Arrow there and back crosses the JVM and a Python worker: the parts that a bad set-up lacks.
    counted = spark.range(10).mapInArrow(lambda batches: batches, "id long").count()
    assert counted == 10


@pytest.mark.spark
def test_java_goes_on_without_an_archive_that_does_not_fit(tmp_path: Path) -> None:
    for archive in (tmp_path / "missing.jsa", tmp_path / "other.jsa"):
        told = java_archive.options(archive).split()
        done = subprocess.run(
            [find_java(os.environ), *told, "-version"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert 'version "' in done.stderr
        assert done.stdout == ""
        (tmp_path / "other.jsa").write_bytes(bytes(100_000))
