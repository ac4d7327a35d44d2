"""The record accumulator: open batches by partition, and the memory that they are written in.

Owns batches until the sender drains them, under the lock of their partition, and the buffer pool under its own.
Callers append and the sender thread drains. Nothing here sends a request or runs a callback of the user under a lock.
"""
