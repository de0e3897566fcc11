"""Transactions of a producer: the state table, the requests, their manager and the public API."""
