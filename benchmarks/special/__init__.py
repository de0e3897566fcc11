"""Special cases of the benchmark, one module each with the same interface.

`NEEDS_BROKERS` is the number of brokers of the cluster for `measure(bootstrap, rounds)`; 0 if the
case needs none, or starts a cluster itself. `measure` returns a `results.Result` as a dictionary.
"""
