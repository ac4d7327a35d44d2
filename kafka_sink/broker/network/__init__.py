"""The broker's network layer: acceptors, processors, the request channel, quotas and the security of listeners.

It owns connections: each belongs to one processor and is used only by that processor's thread. Requests are passed to
handlers, and responses back, through the request channel. The layer must only read the headers of requests.
"""
