"""The cluster's brokers, topics and coordinators, and the broker that a request goes to."""
