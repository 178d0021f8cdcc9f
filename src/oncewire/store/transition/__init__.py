"""The transition, written once for every backend: `work` is what a turn has in memory, the steps
read and change it, `turns` makes each of them undoable alone and writes them with one commit.
"""
