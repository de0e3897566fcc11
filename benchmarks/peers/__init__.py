"""One module a client: `python -m benchmarks.peers.NAME JSON` runs a case, prints figures."""
