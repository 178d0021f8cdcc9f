"""The dialects of the drafts of 2000 and 2001, ms-0.9x and rm-0.78.

One tolerant `reader` reads both, block by block (`blocks`); `writer` writes either.
"""
