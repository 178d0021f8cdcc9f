"""The engine in an event loop. `shell` turns it, `door` is where transports come in, `hand_over`
and `telling` call the application, `supervisor` watches over every task.
"""
