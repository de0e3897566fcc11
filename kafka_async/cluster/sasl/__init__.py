"""SASL: one mechanism per file, each a generator without I/O."""
