"""Applies faults to requests and to their answers, between the dispatcher and the handlers.

Owns nothing: the faults that are set belong to :mod:`kafka_sink.broker.faults`. Runs on the request handler's thread.
It must never reach into a handler: it gives the handler less of a request, or changes the answer.
"""
