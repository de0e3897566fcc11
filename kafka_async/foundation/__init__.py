"""What all packages build on: tasks, clocks, arguments and limits of work; no Kafka."""
