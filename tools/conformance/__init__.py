"""Kafka's own Java classes judge our wire format: what `make conformance` runs."""
