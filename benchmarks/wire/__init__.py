"""Compares codecs of messages and record batches, without a broker."""
