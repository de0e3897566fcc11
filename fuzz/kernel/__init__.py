"""Fuzzes the compiled kernel with libFuzzer; replays corpora with AddressSanitizer and for cost."""
