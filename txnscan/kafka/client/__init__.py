"""Connections to brokers, and their settings."""
