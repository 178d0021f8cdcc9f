"""The commands of the laboratory, loaded by name when the command line starts."""
