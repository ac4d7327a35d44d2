"""The producer: ``KafkaProducer`` is the public class, and each sub-package one step of a record on its way."""
