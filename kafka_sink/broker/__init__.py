"""The embedded Kafka broker: a network layer as Kafka's own, request handlers, and a log on disk.

``broker.embedded_broker`` puts it together; everything else is one station on the way of a request. ``log`` knows no
handler and no socket, handlers know log and cluster state but neither processor nor network.
"""
