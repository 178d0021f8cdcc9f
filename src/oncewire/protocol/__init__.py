"""What may happen: pure state machines of the reliable messaging protocol.

State, event and `now` go in; new state and effects come out. Nothing here reads a clock,
draws a random number or touches a disk, so the simulator runs exactly this code.
"""
