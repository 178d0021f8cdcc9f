"""Parcels as files on a server that both sides reach, over SFTP, FTP and FTPS (TRN-4).

`transport` is the door; the mapping is in `docs/howto/transports.md`.
"""
