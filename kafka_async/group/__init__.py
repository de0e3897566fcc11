"""Group membership: the classic protocol's state machine, and how partitions are shared out."""
