"""Compares our wire format with Kafka's Java classes: `make conformance`."""
