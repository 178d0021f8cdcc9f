"""Messages for people to look at: files taken as parcels (`capture`), told in plain values
(`describe`), and held beside what another handler did (`compare`).
"""
