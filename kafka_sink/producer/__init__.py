"""The producer: ``KafkaProducer`` is the public class, and each sub-package one step of a record on its way.

``pipeline`` creates the parts and connects them. A network other than TCP is an argument of ``KafkaProducer``.
"""
