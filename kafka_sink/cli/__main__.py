"""``python -m kafka_sink.cli`` runs the ``kafkalite`` command if the script is not on the path."""

from __future__ import annotations

from kafka_sink.cli.main import main

main()
