"""Who waits for which transaction: one relation, looked up from the transaction or from the reader (`relation.py`)."""
