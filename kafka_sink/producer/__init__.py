"""The producer: ``KafkaProducer`` is the public class, and each sub-package one step of a record on its way.

``pipeline`` creates the parts and connects them, and ``KafkaProducer`` starts its one thread. ``metrics`` reads the
figures that the parts keep. A network other than TCP is an argument of ``KafkaProducer``.
"""
