"""Agreements from CPPA XML. The door is `reader`.

`xml` parses, `document` and `channel` take out plain values, `values` says them in our keys.
"""
