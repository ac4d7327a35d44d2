"""Fault injection: failures of the broker, the network or the disk that clients may see, triggered on demand."""
