"""Finds the offset at which reading a partition begins."""
