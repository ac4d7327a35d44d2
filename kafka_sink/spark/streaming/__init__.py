"""The parts of a streaming query besides its micro-batches: its checkpoint's offsets, its progress, its stop."""
