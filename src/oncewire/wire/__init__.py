"""How a message looks as bytes: MIME, three dialects, splice, signature, limits. Pure functions."""
