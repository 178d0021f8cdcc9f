"""Oncewire: an ebXML Message Service Handler.

Importing the package opens nothing and needs neither Spark nor a database; ask for the part you
want (`oncewire.message`, `oncewire.handler`, `oncewire.pipeline`) by its own name.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
