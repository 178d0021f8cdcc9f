"""Real handlers over a simulated network, disk and clock, drawn from options and a seed."""
