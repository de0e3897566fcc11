"""Parts of the orchestrator: job ledger, control messages, triggers, retries and job threads."""
