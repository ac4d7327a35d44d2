"""The producer: record accumulator, buffer pool, sender thread and the public class."""
