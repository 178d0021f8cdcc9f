"""The handler at work. `engine` has its verbs, `commit_loop` runs them in an event loop, and
`handler` is what programs use.

`door` takes deliveries, `offers` calls the application, `upkeep` runs
beside the turns, `operate` is the administrator's, `retention` keeps the clock and clears away.
"""
