"""The demo: a streaming word count that is killed, aborted, interrupted and checked."""
