"""Parcels over HTTP: the server, the client and what both read and write."""
