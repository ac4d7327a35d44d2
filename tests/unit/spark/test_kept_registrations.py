"""What a registry has answered is kept of the latest topics only, and its credentials are not shown."""

from __future__ import annotations

from kafka_sink.spark.driver import registration
from kafka_sink.spark.driver.registration import registration_of

REGISTRY = {
    "schema.registry.url": "http://127.0.0.1:9",
    "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": "me:hidden-from-all",
}


def test_registrations_of_the_latest_topics_are_kept() -> None:
    first = registration_of(REGISTRY, "t")
    assert registration_of(dict(reversed(REGISTRY.items())), "t") is first
    others = [registration_of(REGISTRY, f"t-{number}") for number in range(49)]
    assert registration_of(REGISTRY, "t") is first
    assert registration_of(REGISTRY, "t-0") is others[0]
    registration_of(REGISTRY, "one more")
    assert registration_of(REGISTRY, "t-0") is others[0]
    assert registration_of(REGISTRY, "t-1") is not others[1], "nobody had asked for it since"
    assert "hidden-from-all" not in repr(vars(registration))
