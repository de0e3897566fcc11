"""State of the cluster: brokers, topics, logs, configurations, committed offsets. Pure."""
