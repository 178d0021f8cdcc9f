"""A party's folder: its `settings`, keys, agreements and partners, as files that people edit.

`folder` makes one, `store` is what it keeps, `partners` introduces two parties to each other and
follows their keys.
"""
