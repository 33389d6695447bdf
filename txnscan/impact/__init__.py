"""The impact of a hanging transaction: blocked groups and topics, the cause, and the owner."""
