"""Judging evidence: `rules` gives a transaction its verdict, `outcome` says what was decided about its data.

Pure: the same evidence always gives the same answer. The theory stands at the top of both modules.
"""
