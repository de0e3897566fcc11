"""What reads bytes from the network, under a fuzzer that looks for the inputs nobody thought of.

`make fuzz` runs every target for a short while, `make fuzz-long` goes on with its corpus where it
stopped, `python -m fuzz TARGET --seconds N --seed S` runs one, and `python -m fuzz replay TARGET
FILE` repeats a finding. docs/fuzzing.md says what is promised and what was found.
"""
