"""Connections that carry size-prefixed frames, for client and broker: selector, channels, transports, authentication.

Each selector with its channels belongs to the thread that polls it; only ``wakeup`` is safe from other threads. This
package owns sockets and frames in transit. It must never know an API beyond the frames of authentication.
"""
