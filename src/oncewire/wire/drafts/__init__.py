"""The dialects of the drafts of 2000 and 2001. Their doors are `ms09x` and `rm078`.

Both read with one tolerant `reader`; what their writers share is in `writer`.
"""
