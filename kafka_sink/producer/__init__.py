"""The producer: accumulator, buffer pool, sender thread, and the facade over them."""
