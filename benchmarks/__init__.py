"""Benchmarks that compare the client with other clients in the same run."""
