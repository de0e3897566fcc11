"""Rates of clients with quotas, on Apache Kafka and on the embedded cluster."""
