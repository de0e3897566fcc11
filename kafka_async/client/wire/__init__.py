"""Bytes of one connection: frames, versions, requests in flight and the rows of responses."""
