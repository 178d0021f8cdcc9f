"""How we try to break it: a seeded network, disk, clock and crashes around real handlers."""
