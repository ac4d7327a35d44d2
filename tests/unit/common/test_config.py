"""The configuration table: types, rules, hints, secrets, files, the printed page."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.common import config
from kafka_sink.common.config import BOOLEAN, DOUBLE, INT, LIST, REQUIRED, STRING, key
from kafka_sink.common.errors import ConfigError


@dataclass(frozen=True)
class Sample:
    servers: tuple[str, ...] = key(
        "servers", LIST, REQUIRED, "where to go", validator=config.Validator("at least one entry", bool)
    )
    linger_ms: int = key("linger.ms", INT, 5, "how long to wait", validator=config.at_least(0))
    ratio: float = key("ratio", DOUBLE, 0.5, "a share", validator=config.between(0, 1))
    idempotent: bool = key("idempotent", BOOLEAN, True, "no duplicates")
    acks: str = key("acks", STRING, "all", "who confirms", validator=config.one_of("all", "0", "1"))
    password: str = key("ssl.password", STRING, "", "a secret", sensitive=True)
    pin: int | None = key("pin", INT, None, "a secret number", validator=config.at_least(1000), sensitive=True)


def parse(**properties: Any) -> Sample:
    return config.parse(Sample, {"servers": "a:1", **{name.replace("_", "."): v for name, v in properties.items()}})


def refusal(properties: dict[str, Any], prefix: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        config.parse(Sample, properties, prefix=prefix)
    return str(caught.value)


def test_defaults_are_used_for_what_is_not_given() -> None:
    assert parse() == Sample(servers=("a:1",))


@pytest.mark.parametrize(
    ("name", "value", "field", "parsed"),
    [
        ("linger.ms", "7", "linger_ms", 7),
        ("linger.ms", " 7 ", "linger_ms", 7),
        ("linger.ms", 7.0, "linger_ms", 7),
        ("ratio", "0.25", "ratio", 0.25),
        ("ratio", 1, "ratio", 1.0),
        ("idempotent", "False", "idempotent", False),
        ("idempotent", True, "idempotent", True),
        ("acks", " 1 ", "acks", "1"),
        ("servers", "a:1, b:2 ,,", "servers", ("a:1", "b:2")),
        ("servers", ["a:1", "b:2"], "servers", ("a:1", "b:2")),
    ],
)
def test_text_and_python_values_are_read_alike(name: str, value: Any, field: str, parsed: Any) -> None:
    assert getattr(config.parse(Sample, {"servers": "a:1", name: value}), field) == parsed


@pytest.mark.parametrize(
    ("name", "value", "type_name"),
    [
        ("linger.ms", "5s", "a whole number"),
        ("linger.ms", 5.5, "a whole number"),
        ("linger.ms", True, "a whole number"),
        ("linger.ms", None, "a whole number"),
        ("ratio", "half", "a number"),
        ("idempotent", "yes", "true or false"),
        ("idempotent", 1, "true or false"),
        ("acks", 1, "text"),
        ("servers", 5, "a comma-separated list"),
    ],
)
def test_a_wrong_type_names_option_value_and_expectation(name: str, value: Any, type_name: str) -> None:
    text = refusal({"servers": "a:1", name: value})
    assert text.startswith(f"option {name}: {value!r} is not {type_name}; ")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("linger.ms", -1, "at least 0"),
        ("ratio", "1.5", "from 0 to 1"),
        ("acks", "2", "one of all, 0, 1"),
        ("servers", "", "at least one entry"),
    ],
)
def test_a_refused_value_names_the_rule(name: str, value: Any, expected: str) -> None:
    assert f"option {name}: {value!r} is not allowed, expected {expected}" in refusal({"servers": "a:1", name: value})


def test_a_missing_required_key_is_named() -> None:
    assert refusal({}) == "option servers is required: where to go"


def test_an_unknown_key_comes_with_the_nearest_known_one() -> None:
    assert refusal({"servers": "a:1", "linger_ms": 5}) == "unknown option linger_ms (did you mean linger.ms?)"


def test_an_unknown_key_like_nothing_comes_without_a_guess() -> None:
    assert refusal({"servers": "a:1", "qqqqqqqq": 5}) == "unknown option qqqqqqqq"


def test_the_prefix_the_user_wrote_is_in_every_message() -> None:
    assert refusal({"servers": "a:1", "lingerms": 5}, "kafka.") == (
        "unknown option kafka.lingerms (did you mean kafka.linger.ms?)"
    )
    assert refusal({"servers": "a:1", "linger.ms": "x"}, "kafka.").startswith("option kafka.linger.ms: 'x' ")
    assert refusal({}, "kafka.").startswith("option kafka.servers is required")


@pytest.mark.parametrize(("name", "value"), [("ssl.password", 12_345), ("pin", "hunter2"), ("pin", "123")])
def test_a_refused_secret_is_not_shown(name: str, value: Any) -> None:
    text = refusal({"servers": "a:1", name: value})
    assert str(value) not in text
    assert config.REDACTED in text


def test_a_refused_secret_does_not_hang_on_the_exception_as_its_cause() -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(Sample, {"servers": "a:1", "pin": "hunter2"})
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_secret_is_not_in_the_repr() -> None:
    assert "hunter2" not in repr(config.parse(Sample, {"servers": "a:1", "ssl.password": "hunter2"}))


def test_the_result_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        parse().linger_ms = 6  # type: ignore[misc]


def test_a_config_inherits_the_keys_of_its_base() -> None:
    @dataclass(frozen=True)
    class Wider(Sample):
        extra: int = key("extra", INT, 1, "one more")

    assert list(config.keys(Wider)) == [*config.keys(Sample), "extra"]
    assert config.parse(Wider, {"servers": "a:1", "extra": "2"}).extra == 2


@given(st.dictionaries(st.text(max_size=12), st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))))
def test_any_properties_give_a_config_or_a_config_error(properties: dict[str, Any]) -> None:
    try:
        parsed = config.parse(Sample, properties)
    except ConfigError:
        return
    assert parsed.servers


def test_properties_file(tmp_path: Path) -> None:
    path = tmp_path / "sample.properties"
    path.write_text("# comment\n! also\n\nlinger.ms = 7\nservers=a:1,b:2\nssl.password=a=b#c\n", encoding="utf-8")
    assert config.load_properties(str(path)) == {"linger.ms": "7", "servers": "a:1,b:2", "ssl.password": "a=b#c"}


def test_properties_file_with_a_broken_line_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "sample.properties"
    path.write_text("linger.ms=7\nservers\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"sample\.properties line 2: 'servers' is not name=value"):
        config.load_properties(str(path))


def test_the_printed_page_has_a_row_a_key() -> None:
    lines = config.markdown_table(Sample, prefix="kafka.").splitlines()
    assert len(lines) == 2 + len(config.keys(Sample))
    assert "| `kafka.servers` | required | where to go (at least one entry) |" in lines
    assert "| `kafka.idempotent` | true | no duplicates |" in lines
    assert "| `kafka.ssl.password` | none | a secret |" in lines
