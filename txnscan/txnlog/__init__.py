"""Read and check `__transaction_state`."""
