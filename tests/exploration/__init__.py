"""An exploration of all interleavings of exactly-once drivers in a small world."""
