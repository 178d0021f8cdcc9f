"""Real handlers in a simulated world: its time, network, disks and people follow a plan."""
