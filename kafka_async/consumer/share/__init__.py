"""The consumer of a share group: acquires records and acknowledges each one (KIP-932)."""
