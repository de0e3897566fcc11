"""The group coordinator: the classic group protocol."""
