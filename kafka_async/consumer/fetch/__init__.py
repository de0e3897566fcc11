"""Requests for records, one task per broker."""
