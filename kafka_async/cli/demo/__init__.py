"""The demo: a transactional word count that is killed, aborted and checked."""
