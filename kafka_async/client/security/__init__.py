"""TLS, SASL and tokens."""
