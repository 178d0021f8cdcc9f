"""Ways in which documents that arrive reach the application, each with its guarantee."""
