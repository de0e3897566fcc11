"""Connections to brokers: sockets, handshake, throttling and their failures."""
