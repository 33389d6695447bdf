"""Kafka's APIs, a module for each, headed by its versions, ACLs and traps; and the formats of records."""
