"""The configuration table: types, rules, hints, secrets, files, the generated page."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.common import config
from kafka_sink.common.config import BOOLEAN, DOUBLE, INT, LIST, REQUIRED, STRING
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.properties import load_properties
from scripts.option_table import markdown_table
from tests.support.cases import with_each


@dataclass(frozen=True)
class Sample(config.Options):
    servers: tuple[str, ...] = LIST(REQUIRED, "where to go", config.Validator("at least one entry", bool))
    linger_ms: int = INT(5, "how long to wait", config.at_least(0))
    ratio: float = DOUBLE(0.5, "a share", config.between(0, 1))
    idempotent: bool = BOOLEAN(True, "no duplicates")
    acks: str = STRING("all", "who confirms", config.one_of("all", "0", "1"))
    password: str = STRING("", "a secret", name="ssl.password", sensitive=True)
    pin: int | None = INT(None, "a secret number", config.at_least(1000), sensitive=True)


def parse(**properties: Any) -> Sample:
    return config.parse(Sample, {"servers": "a:1", **{name.replace("_", "."): v for name, v in properties.items()}})


def refusal(properties: dict[str, Any], prefix: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        config.parse(Sample, properties, prefix=prefix)
    return str(caught.value)


def test_defaults_are_used_for_what_is_not_given() -> None:
    assert parse() == Sample(servers=("a:1",))


@with_each(
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


@with_each(
    ("name", "value", "type_name"),
    [
        ("linger.ms", "5s", "a whole number"),
        ("linger.ms", 5.5, "a whole number"),
        ("linger.ms", True, "a whole number"),
        ("linger.ms", None, "a whole number"),
        ("ratio", "half", "a number"),
        ("idempotent", "yes", "true or false"),
        ("idempotent", 1, "true or false"),
        ("acks", 1.5, "text"),
        ("servers", 5, "a comma-separated list"),
    ],
)
def test_a_wrong_type_names_option_value_and_expectation(name: str, value: Any, type_name: str) -> None:
    text = refusal({"servers": "a:1", name: value})
    assert text.startswith(f"option {name}: {value!r} is not {type_name}; ")


@with_each(
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


@pytest.mark.parametrize("wrong", ["a:1", None, ["servers"]])
def test_what_is_no_mapping_is_refused_by_its_type(wrong: Any) -> None:
    assert refusal(wrong) == f"the options must be a mapping of names to values, got {type(wrong).__name__}"


def test_a_name_that_is_no_text_is_refused_by_its_type() -> None:
    assert refusal({5: "a:1"}) == "the name of an option must be str, got int (5)"  # type: ignore[dict-item]


def test_the_prefix_the_user_wrote_is_in_every_message() -> None:
    assert refusal({"servers": "a:1", "lingerms": 5}, "kafka.") == (
        "unknown option kafka.lingerms (did you mean kafka.linger.ms?)"
    )
    assert refusal({"servers": "a:1", "linger.ms": "x"}, "kafka.").startswith("option kafka.linger.ms: 'x' ")
    assert refusal({}, "kafka.").startswith("option kafka.servers is required")


@pytest.mark.parametrize(("name", "value"), [("ssl.password", 12.345), ("pin", "hunter2"), ("pin", "123")])
def test_a_refused_secret_is_not_shown(name: str, value: Any) -> None:
    text = refusal({"servers": "a:1", name: value})
    assert str(value) not in text
    assert config.REDACTED in text


def test_refused_secret_is_not_in_the_cause_of_the_exception() -> None:
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
        extra: int = INT(1, "one more")

    assert list(config.keys(Wider)) == [*config.keys(Sample), "extra"]
    assert config.parse(Wider, {"servers": "a:1", "extra": "2"}).extra == 2


@given(st.dictionaries(st.text(max_size=12), st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))))
def test_any_properties_give_a_config_or_a_config_error(properties: dict[str, Any]) -> None:
    try:
        parsed = config.parse(Sample, properties)
    except ConfigError:
        return
    assert parsed.servers


def loaded(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "sample.properties"
    path.write_text(text, encoding="utf-8", newline="")
    return load_properties(str(path))


def test_properties_file(tmp_path: Path) -> None:
    text = "# comment\n! also\n\nlinger.ms = 7\nservers=a:1,b:2\nssl.password=a=b#c\n"
    assert loaded(tmp_path, text) == {"linger.ms": "7", "servers": "a:1,b:2", "ssl.password": "a=b#c"}


# Source of the expected values: java.util.Properties for the same text.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb c", {"a": "b c"}),
        ("  a = b ", {"a": "b "}),
        ("a = = b", {"a": "= b"}),
        ("a=:b", {"a": ":b"}),
        ("a=", {"a": ""}),
        ("a:\nb = ", {"a": "", "b": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a\\\n  =b", {"a": "b"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("# no \\\na=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\ b\\:c\\=d=e", {"a b:c=d": "e"}),
        (r"\#a=\!b", {"#a": "!b"}),
        (r"a=C:\\dir\\file", {"a": "C:\\dir\\file"}),
        (r"a=\t|\n|\r|\f|\q", {"a": "\t|\n|\r|\f|q"}),
        (r"a=\ b", {"a": " b"}),
        (r"a=cl\u00E9\ud83d\ude00", {"a": "clé😀"}),
        ("clé=é", {"clé": "é"}),
    ],
)
def test_a_properties_file_means_what_it_means_in_java(text: str, expected: dict[str, str], tmp_path: Path) -> None:
    assert loaded(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("linger.ms=7\n secretpw", "line 2: expected name=value"),
        ("secretpw  \n", "line 1: expected name=value"),
        ("a=1,\\\n2\n=secretpw", "line 3: expected name=value"),
        (": secretpw", "line 1: expected name=value"),
        (r"secret\ pw", "line 1: expected name=value"),
        ("secret\\\npw", "line 1: expected name=value"),
        (r"ssl.password=secretpw\u12", r"line 1: ssl.password has a malformed \uHHHH"),
        (r"ssl.password: secretpw\udead", r"line 1: ssl.password has a malformed \uHHHH"),
    ],
)
def test_broken_properties_line_is_named_but_not_shown(text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'sample.properties'} {error}"
    assert caught.value.__cause__ is None


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_any_property_survives_a_file(properties: dict[str, str]) -> None:
    escaped = ["".join(f"\\u{u:04x}" for u in units(text)) for text in (t for p in properties.items() for t in p)]
    with TemporaryDirectory() as directory:
        lines = "".join(f"{name}={value}\n" for name, value in zip(escaped[::2], escaped[1::2], strict=True))
        assert loaded(Path(directory), lines) == properties


def units(text: str) -> list[int]:
    """The UTF-16 code units of a string in Java."""
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]


def test_the_printed_page_has_a_row_a_key() -> None:
    lines = markdown_table(Sample, prefix="kafka.").splitlines()
    assert len(lines) == 2 + len(config.keys(Sample))
    assert '| <a id="kafka.servers"></a>`kafka.servers` | required | where to go (at least one entry) |' in lines
    assert '| <a id="kafka.idempotent"></a>`kafka.idempotent` | true | no duplicates |' in lines
    assert '| <a id="kafka.ssl.password"></a>`kafka.ssl.password` | none | a secret |' in lines
