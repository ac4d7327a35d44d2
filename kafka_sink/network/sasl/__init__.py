"""SASL mechanisms, both sides.

They own the state of one authentication, on the connection's thread. They only process tokens; client and broker
transport these.
"""
