"""Oncewire: an ebXML Message Service Handler.

Importing the package opens nothing and needs neither Spark nor a database; ask for the part you
want (`oncewire.message`, `oncewire.handler`, `oncewire.pipeline`) by its own name.
"""

import logging

__version__ = "0.1.0"

# A program that has not said where its log goes is not given lines it did not ask for.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = ["__version__"]
