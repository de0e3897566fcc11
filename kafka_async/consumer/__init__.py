"""The consumer: what it reads, how it fetches, where it stands and what it commits."""
