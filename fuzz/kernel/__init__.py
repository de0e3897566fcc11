"""The compiled kernel under libFuzzer; its corpus again under AddressSanitizer and for its cost."""
