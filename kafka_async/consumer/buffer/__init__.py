"""Fetched records that were not returned yet."""
