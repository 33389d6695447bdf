"""What a hanging transaction blocks, how it came about and whose it is."""
