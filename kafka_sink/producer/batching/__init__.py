"""The record accumulator: open batches by partition, and the memory that holds them.

It owns batches until the sender drains them, under the lock of their partition; the buffer pool has its own lock.
Calling threads append and the sender thread drains. Nothing in this package sends a request or runs a user's callback
under a lock.
"""
