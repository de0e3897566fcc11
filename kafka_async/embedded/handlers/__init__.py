"""Request handlers, one module per API, each with its `ROUTE`; see context.py."""
