"""Wild worlds: everything about a run is drawn from its seed, kept as data, and can be taken away."""
