"""The `oncewire` command: one module per group of commands, all speaking through `output`."""
