"""A consumer's part in its group: rebalances, commits and rewinds."""
