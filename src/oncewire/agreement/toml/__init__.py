"""Agreements as people write them. The doors are `reader` and `writer`."""
