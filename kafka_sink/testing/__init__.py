"""For tests of other projects: a Kafka cluster and topics as pytest fixtures. pytest loads them automatically."""
