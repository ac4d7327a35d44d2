"""Many streams on a Spark of five workers and a Kafka of three nodes, all of which are restarted in turn; see
``scripts/hosts.sh``."""
