"""Returns records to the application, and holds them back during a rebalance."""
