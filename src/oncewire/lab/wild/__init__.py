"""Worlds in which everything is drawn from the seed: agreements, people, faults, clocks."""
