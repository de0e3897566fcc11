"""Consumer group membership: the classic rebalance protocol and partition assignment."""
