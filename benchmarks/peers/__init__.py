"""One module per client: `python -m benchmarks.peers.NAME JSON` runs a case and prints figures."""
