"""How a running party is watched: what is seen of it, whether it is ready, metrics."""
