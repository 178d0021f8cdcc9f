"""How it looks as bytes: MIME, three dialects, splice, signature, limits. Pure."""
