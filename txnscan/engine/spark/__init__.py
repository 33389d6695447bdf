"""Spark: sessions, and reads on executors."""
