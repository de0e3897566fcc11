"""The producer: records into batches, batches to brokers, transactions around them."""
