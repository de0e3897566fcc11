"""Fuzzes the code that reads bytes from the network.

`make fuzz` runs every target for a short time, `make fuzz-long` continues with the corpus of the
last run, `python -m fuzz TARGET --seconds N --seed S` runs one target, and `python -m fuzz replay
TARGET FILE` repeats a finding. docs/fuzzing.md lists the promises and the findings.
"""
