"""Answers assistants over the Model Context Protocol (`txnscan mcp`). It only reads: import-linter forbids the code
that sends markers, fences ids or writes the journal. If you came to add a tool, read `tools.py`.
"""
