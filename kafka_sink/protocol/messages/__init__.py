"""One module per API, each a declaration and nothing else; :mod:`kafka_sink.protocol.registry` lists them."""
