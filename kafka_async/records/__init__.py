"""Encodes and decodes record batches, the format of records on the wire and in logs. No I/O."""
