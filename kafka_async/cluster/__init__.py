"""Connections and brokers: metadata, lanes, routing and the low-level RPC client."""
