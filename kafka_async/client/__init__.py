"""The low-level client: metadata, connections, security, and the broker for each request."""
