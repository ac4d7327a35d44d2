"""kafkalite: a Kafka sink for PySpark and an embedded broker, without a jar."""
