"""Compares the Spark data source with Spark's own Kafka connector."""
