"""Consumer: subscription, fetching, positions, commits and group rebalances."""
