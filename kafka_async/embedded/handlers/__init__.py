"""Handlers, one module an API, each with its `ROUTE`; see context.py."""
