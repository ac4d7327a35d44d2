"""Connections that carry size-prefixed frames, for client and broker: selector, channels, transports, authentication.

Each selector with its channels belongs to the thread that polls it; only ``wakeup`` is safe from other threads. This
package owns sockets and frames in transit: each channel has one ``send_slot``, which alone knows whether its frame has
been written and the next may follow; ``listener`` accepts connections. It must not depend on any API other than the
frames of authentication.
"""
