"""Batches until they are drained, by partition, and the memory that holds them.

Calling threads append (``accumulator``) and the sender thread drains (``batch_drain``), each under the lock of one
partition; the buffer pool has its own lock.
"""
