"""The Kafka client that producer, consumer and tools share: requests to the right node, responses to who asked.

``NetworkClient`` belongs to the one thread that polls it, and blocks only in the poll of its selector. It owns the
requests in flight, the cluster's metadata and the negotiated versions. It must never interpret records.
"""
