"""The embedded Kafka broker: a network layer modelled on Kafka's, request handlers, and a log on disk.

``broker.embedded_broker`` puts the parts together; each other package is one stage in the path of a request. ``log``
uses neither handlers nor sockets; handlers use the log and the cluster state, but neither processors nor the network.
"""
