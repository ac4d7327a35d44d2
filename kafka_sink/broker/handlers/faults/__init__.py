"""Applies faults to requests and to their answers, between the dispatcher and the handlers.

The package owns no state: the faults that are set belong to :mod:`kafka_sink.broker.faults`. It runs on the request
handler's thread. It must not change handlers: it passes a part of the request to the handler, or changes the answer.
"""
