"""Sweeps in SQL: a data source for Spark."""
