"""Evidence to words that decide: `rules` gives a transaction its verdict, `outcome` says what was decided about it.

Pure: the same evidence always gives the same answer. The theory stands above the rules in each of them.
"""
