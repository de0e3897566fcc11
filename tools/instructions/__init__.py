"""Counts the instructions of the hot paths under callgrind, and compares them with a budget."""
