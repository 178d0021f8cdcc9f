"""What the pipeline reads: journals, exports, archives, and how they enter the lake."""
