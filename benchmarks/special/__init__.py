"""Cases that need no broker, or have a shape of their own: one module each, all used alike.

`NEEDS_BROKERS` says how many brokers the cluster must have that `measure(bootstrap, rounds)` is
given; 0 if it needs none, or starts what it needs. What it returns is a `results.Result` as a dict.
"""
