"""Tasks, clocks, arguments and limits of work, on which all packages build; no Kafka."""
