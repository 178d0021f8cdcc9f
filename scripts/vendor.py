"""Fetch the front-end files that the package and its tests carry, by `npm pack` and by name.

Run it to change a version: it replaces the files and their licences. Nothing is fetched when the
product runs, and there is no build step.
"""

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
STATIC = ROOT / "src/oncewire/entry/console/static/vendor"
TESTS = ROOT / "tests/entry/console/vendor"

PACKAGES = {
    "htmx.org@4.0.1": (
        STATIC,
        {
            "dist/htmx.min.js": "htmx.min.js",
            "dist/ext/hx-sse.min.js": "hx-sse.min.js",
            "LICENSE": "htmx.LICENSE",
        },
    ),
    "uplot@1.6.32": (
        STATIC,
        {
            "dist/uPlot.iife.min.js": "uplot.min.js",
            "dist/uPlot.min.css": "uplot.min.css",
            "LICENSE": "uplot.LICENSE",
        },
    ),
    "axe-core@4.14.0": (TESTS, {"axe.min.js": "axe.min.js", "LICENSE": "axe.LICENSE"}),
}
"""Name and version of each package, the folder, and the files that are taken from it."""


def main() -> None:
    """Fetch every package and put its files into their places."""
    with tempfile.TemporaryDirectory() as folder:
        for package, (place, files) in PACKAGES.items():
            told = subprocess.run(
                ["npm", "pack", "--silent", package],
                cwd=folder, check=True, capture_output=True, text=True,
            )  # fmt: skip
            place.mkdir(parents=True, exist_ok=True)
            with tarfile.open(Path(folder) / told.stdout.split()[-1]) as archive:
                for source, name in files.items():
                    found = archive.extractfile(f"package/{source}")
                    assert found is not None, source
                    with (place / name).open("wb") as file:
                        shutil.copyfileobj(found, file)
            print(f"{package}: {', '.join(files.values())}")


if __name__ == "__main__":
    main()
