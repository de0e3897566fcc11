"""Kafka's wire format: encodes and decodes protocol messages.

`api.lookup` finds an API by key or name, `messages` contains the message classes, and `header`
reads and writes frames. Nothing in this package waits or reads a clock.
"""
