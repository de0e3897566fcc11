"""Records from `send` until a broker has acknowledged them."""
