"""Against a real Kafka. A package, so that its fixtures end with it."""
