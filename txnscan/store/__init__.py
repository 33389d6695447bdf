"""What sweeps leave behind: `schema` is the one list of columns, `tables` writes and reads them.

`selection` says which stored sweep counts, `history` what the tables remember, and `damage` why they cannot be used.
"""
