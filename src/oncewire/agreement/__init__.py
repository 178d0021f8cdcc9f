"""What was agreed: TOML, profiles and CPPA XML to one `Agreement`, and what follows from it.

Pure: text and bytes go in, values come out; reading files is the caller's job.
"""
