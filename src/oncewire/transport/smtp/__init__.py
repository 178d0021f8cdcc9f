"""Parcels as mail, out and in; `transport` is the door."""
