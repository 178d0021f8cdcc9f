"""How the site is built: `make docs` writes it to build/site, without a request to any host."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import reference

import oncewire

project = "Oncewire"
author = "The Oncewire maintainers"
project_copyright = author
release = version = oncewire.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence"]
# Anchors for headings as repositories show them, so that one link works in both places.
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["build"]
html_theme = "furo"
html_title = "Oncewire"
html_static_path = ["img"]
html_copy_source = False
html_show_sphinx = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"

reference.write()
