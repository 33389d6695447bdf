"""Requests to all brokers: who leads which partition, what coordinators claim, and whether every claim was visible."""
