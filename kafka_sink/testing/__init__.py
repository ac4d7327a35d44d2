"""For tests of other projects: a Kafka cluster and topics as pytest fixtures. pytest finds them by itself."""
