"""Rewinds partitions of a group, whichever member reads them."""
