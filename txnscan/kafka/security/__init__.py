"""Authentication, key stores and ACLs."""
