"""The Kafka client that producer, consumer and tools share: requests to the right node, responses to their senders.

``NetworkClient`` belongs to the one thread that polls it, and blocks only in the poll of its selector. It owns the
requests in flight (their number and time-outs), the cluster's ``metadata`` (state, expiry and refresh, which
``metadata_updater`` requests) and the negotiated versions. ``factory`` builds it from the configuration. It must never
interpret records.
"""
