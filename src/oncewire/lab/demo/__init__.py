"""The demo: `play` is the whole of it, `chaos` its bad network, `books` what Spark finds after."""
