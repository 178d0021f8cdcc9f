"""What keeps Spark from running is found before it is started, and said with its remedy."""

import importlib.util
from pathlib import Path

import pytest

from oncewire.entry.cli import lake, output
from oncewire.entry.cli.lake import find_java, java_version, spark_lacks
from oncewire.pipeline.lake.version import CURRENT_FILE
from tests.entry.terminal import run_json


def java(folder: Path, says: str) -> Path:
    """A program that answers `-version` like a Java of some age."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.process
@pytest.mark.parametrize(
    ("says", "number"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 1),
        ("Segmentation fault", None),
    ],
)
def test_the_number_of_a_java(tmp_path: Path, says: str, number: int | None) -> None:
    assert java_version(java(tmp_path, says) / "bin" / "java") == number


@pytest.mark.process
def test_what_is_no_program_has_no_number(tmp_path: Path) -> None:
    assert java_version(tmp_path / "nothing") is None


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, other = java(tmp_path / "home", "x"), java(tmp_path / "other", "x")
    path = str(other / "bin")
    assert find_java({"JAVA_HOME": str(home), "PATH": path}) == home / "bin" / "java"
    assert find_java({"PATH": path}) == other / "bin" / "java"
    # As for Spark itself, a JAVA_HOME that is wrong is not mended by the PATH.
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": path}) is None
    assert find_java({"PATH": str(tmp_path)}) is None


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec("json")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: found)


@pytest.mark.process
@pytest.mark.usefixtures("installed")
def test_what_is_lacking_is_named_with_its_remedy(tmp_path: Path) -> None:
    new = java(tmp_path / "new", 'openjdk version "17.0.15"')
    assert spark_lacks({"JAVA_HOME": str(new)}) is None
    old = java(tmp_path / "old", 'openjdk version "11.0.2"')
    lacking = spark_lacks({"JAVA_HOME": str(old)})
    assert lacking is not None
    assert "Java 11" in lacking.problem
    assert "17+" in lacking.remedy
    nothing = spark_lacks({"PATH": str(tmp_path)})
    assert nothing is not None
    assert "there is none here" in nothing.problem
    assert spark_lacks({"PATH": str(tmp_path), "PYSPARK_GATEWAY_PORT": "1"}) is None


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake.importlib.util, "find_spec", lambda _name: None)
    lacking = spark_lacks({})
    assert lacking is not None
    assert lacking.remedy == "pip install 'oncewire[spark]'"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--lake", "lake", "--store", "."),
        ("prove", "--lake", "lake"),
        ("reconcile", "one", "two"),
        ("journal", "archive", "--to", "journal", "--party", "acme"),
        ("generate", "--output", "lake"),
    ],
)
def test_the_commands_name_a_missing_package(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(lake.importlib.util, "find_spec", lambda _name: None)
    said = run_json("pipeline", *words, exit_code=output.NOT_ALLOWED)
    assert said["problems"][0]["next"] == "pip install 'oncewire[spark]'"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("words", [("verify",), ("run",)])
def test_the_commands_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / CURRENT_FILE).write_text("00000001.json\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = run_json("pipeline", *words, "--lake", tmp_path / "lake", exit_code=output.NOT_ALLOWED)
    assert said["problems"][0]["problem"] == "Spark needs Java, and there is none here"
    assert "Java 17+" in said["problems"][0]["next"]
