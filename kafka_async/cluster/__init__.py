"""Connections, brokers, metadata, request routing and the low-level client."""
