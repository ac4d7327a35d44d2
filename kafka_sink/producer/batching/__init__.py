"""Batches until they are drained, by partition, and the memory that holds them."""
