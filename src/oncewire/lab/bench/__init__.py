"""Benchmarks: what the handler does in a second, each figure beside the limit of the same run.

Machines differ and are shared, so no figure stands alone: the limit (no protocol, nothing but the
bytes and the disk) is measured by turns with it, and the ratio of the two is what can be compared.
"""
