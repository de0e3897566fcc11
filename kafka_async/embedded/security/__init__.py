"""Security of the embedded cluster: listeners, TLS, SASL, principals, credentials and tokens."""
