"""Write ``transaction_answers.json``: a broker's answers to the requests in ``tests/support/transaction_script.py``.

    scripts/kafka.sh start --port 0 --dir DIR
    python -m tests.golden.make_transaction_answers BOOTSTRAP "Apache Kafka 4.3.0, transaction.version 2"

The file stores the second argument as the source of the answers.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

from kafka_sink.client.blocking.admin import AdminClient
from tests.support.transaction_script import ask_everything

ANSWERS = Path(__file__).with_name("transaction_answers.json")


def main(bootstrap_servers: str, made_by: str) -> None:
    topic = f"answers-{uuid.uuid4().hex[:8]}"
    with AdminClient(bootstrap_servers) as admin:
        admin.create_topic(topic, partitions=3)
    answers = ask_everything(bootstrap_servers, topic)
    ANSWERS.write_text(json.dumps({"made_by": made_by, "answers": answers}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
