"""Context of a request, and responses with error codes for any API."""
