"""A sweep from the plan to the result."""
