"""The sink: writes rows of batch and streaming queries, exactly once if wanted."""
