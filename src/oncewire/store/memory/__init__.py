"""The store in memory, for tests and the simulator: the same transitions over dictionaries."""
