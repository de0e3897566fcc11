"""Request handlers, one function per API; see routes.py."""
