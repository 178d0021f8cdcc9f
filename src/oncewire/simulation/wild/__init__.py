"""Wild worlds: all of a run is drawn from its seed, is data, and can be taken away."""
