"""Chaos: Spark writes exactly once in four ways to a Kafka of three nodes while processes, nodes and the network fail.

``scripts/chaos.sh`` runs it. confluent-kafka judges what readers of committed records see at the end.
"""
