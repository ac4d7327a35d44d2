"""The parts of a streaming query besides its micro-batches: its checkpoint's offsets, its progress, and how it is
stopped.

Owns the listener and the signal handlers of a job. Runs in the user's process on the driver, and reads the checkpoint
in the planner. It must never write to the checkpoint.
"""
