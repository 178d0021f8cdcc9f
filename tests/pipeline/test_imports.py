"""The pipeline stands on message, protocol, wire and journal alone: an executor has no more."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

PROBE = """
import importlib, pkgutil, sys
for name in ("apsw", "aiohttp", "xmlsec", "typer", "rich"):
    sys.modules[name] = None
import oncewire.pipeline
path = oncewire.pipeline.__path__
found = [module.name for module in pkgutil.walk_packages(path, "oncewire.pipeline.")]
for name in found:
    importlib.import_module(name)
inner = {name.split(".")[1] for name in sys.modules if name.startswith("oncewire.")}
print(len(found), *sorted(inner))
"""


@pytest.mark.process
def test_every_module_imports_without_databases_servers_and_the_command_line() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    count, *inner = answer.stdout.split()
    assert int(count) > 25
    assert set(inner) <= {"pipeline", "message", "protocol", "wire", "journal", "errors"}


@pytest.mark.process
def test_the_package_itself_needs_no_spark() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import oncewire, oncewire.pipeline"
    subprocess.run([sys.executable, "-c", code], check=True)
