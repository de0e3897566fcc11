"""Record batches: the format in which records travel and rest. No I/O."""
