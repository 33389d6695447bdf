"""Sweeps for SQL: a data source of Spark."""
