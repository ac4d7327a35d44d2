"""Faults on demand: what a broker, its network or its disk may do to a client, made to happen when it is asked for."""
