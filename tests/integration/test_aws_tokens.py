"""Tokens for IAM on Amazon MSK: made by Amazon's library, checked by hand; and what is said if there are none."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from kafka_sink.client.login.channel_security import create_channel_builder
from kafka_sink.client.login.token_source import aws_tokens, token_source
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.config import parse
from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.http.oauth.token_login import LOGINS
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import CheckTarget, Finding, Status
from kafka_sink.producer.config import ProducerConfig, check_elsewhere
from tests.fakes.clock import FakeClock
from tests.hostile.servers import EvilHttp
from tests.support.certificates import Authority
from tests.support.secure_cluster import address, secure_cluster

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
KEY_ID, KEY, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "s3ss10n=="
MSK = "b-1.orders.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.orders.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098"
#: As Amazon's documentation writes it for Java clients.
OF_AMAZON = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
AUTHORITY = Authority()


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """No credentials of this machine, and a fixed time."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: NOW.replace(tzinfo=None))
    yield monkeypatch
    LOGINS.forget()


def has_keys(aws: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": KEY_ID, "SECRET_ACCESS_KEY": KEY, "SESSION_TOKEN": SESSION}.items():
        aws.setenv(f"AWS_{name}", value)


def clock() -> FakeClock:
    return FakeClock(int(NOW.timestamp() * 1000))


def config(**given: str) -> ClientConfig:
    properties = {
        "bootstrap.servers": "localhost:9098",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        **{name.replace("_", "."): value for name, value in given.items()},
    }
    return parse(ClientConfig, properties)


def signature(url: str, region: str) -> str:
    """The signature that *url* must have (AWS Signature Version 4, query string)."""
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("X-Amz-Signature", "User-Agent")]
    canonical = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query))
    request = f"GET\n/\n{canonical}\nhost:{parts.netloc}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    scope = f"20260102/{region}/kafka-cluster/aws4_request"
    text = f"AWS4-HMAC-SHA256\n20260102T030405Z\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{KEY}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


@pytest.mark.behaviour("SASL", "Tokens for IAM on Amazon MSK are those of Amazon's signer, with a valid signature")
@pytest.mark.parametrize("region", ["eu-west-1", "us-gov-east-1"])
def test_token_for_msk_is_signed_as_amazon_says(region: str, aws: pytest.MonkeyPatch) -> None:
    has_keys(aws)
    token = token_source(config(sasl_oauthbearer_aws_region=region), clock()).token()
    assert (token.value, token.expires_ms) == MSKAuthTokenProvider.generate_auth_token(region)
    assert token.expires_ms == NOW.timestamp() * 1000 + 900_000
    url = base64.urlsafe_b64decode(token.value + "=" * (-len(token.value) % 4)).decode()
    given = dict(parse_qsl(urlsplit(url).query))
    assert urlsplit(url).netloc == f"kafka.{region}.amazonaws.com"
    assert (given["Action"], given["X-Amz-Security-Token"]) == ("kafka-cluster:Connect", SESSION)
    assert given["X-Amz-Signature"] == signature(url, region)


@pytest.mark.behaviour("SASL", "The four lines of Amazon's documentation work, with a warning that they are translated")
def test_lines_of_amazon_are_translated(aws: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    has_keys(aws)
    given = parse(ClientConfig, {**OF_AMAZON, "bootstrap.servers": MSK})
    create_channel_builder(given, clock(), "me")
    (warning,) = caplog.messages
    assert warning.startswith("sasl.mechanism=AWS_MSK_IAM is translated into OAUTHBEARER")
    token = token_source(given, clock()).token()
    assert b"kafka.eu-west-1.amazonaws.com" in base64.urlsafe_b64decode(token.value + "==")
    handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    again = config(bootstrap_servers=MSK, sasl_login_callback_handler_class=handler)
    assert token_source(again, clock()).token().value == token.value
    # On the driver only the options are checked: it may have no credentials.
    aws.delenv("AWS_ACCESS_KEY_ID")
    check_elsewhere(parse(ProducerConfig, {**OF_AMAZON, "bootstrap.servers": MSK}))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"sasl_mechanism": "AWS_MSK_IAM"}, r"is not in bootstrap\.servers; set sasl\.oauthbearer\.aws\.region"),
        ({"sasl_oauthbearer_aws_region": "Ireland"}, "expected a region such as eu-west-1"),
        ({"sasl_oauthbearer_aws_region": "x.com/#"}, "expected a region such as eu-west-1"),
        (
            {"sasl_oauthbearer_aws_region": "eu-west-1", "sasl_oauthbearer_token_endpoint_url": "https://idp/"},
            "remove one of them",
        ),
        ({"sasl_client_callback_handler_class": "a.IAMClientCallbackHandler"}, "is for sasl.mechanism=AWS_MSK_IAM"),
        ({"sasl_client_callback_handler_class": "my.Handler"}, "other Java classes cannot be used"),
        (
            {
                "sasl_mechanism": "AWS_MSK_IAM",
                "bootstrap_servers": MSK,
                "sasl_jaas_config": "IAMLoginModule required awsRoleExternalId=x;",
            },
            "awsRoleExternalId is not supported, expected awsProfileName",
        ),
        (
            {
                "sasl_mechanism": "AWS_MSK_IAM",
                "bootstrap_servers": MSK,
                "sasl_jaas_config": 'IAMLoginModule required awsProfileName="a" awsRoleArn="b";',
            },
            "exclude each other",
        ),
    ],
)
def test_options_for_msk_that_contradict_are_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        token_source(config(**given), clock())


def token_error(**given: str) -> str:
    user = token_source(config(sasl_oauthbearer_aws_region="eu-west-1", **given), clock())
    with pytest.raises(AuthenticationError) as error:
        user.token()
    return str(error.value)


@pytest.mark.behaviour("SASL", "Missing and wrong AWS credentials are named, with what to do, and no key is shown")
def test_missing_credentials_are_named(aws: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert "no AWS credentials are found; the AWS credentials cannot be used; give the machine a role" in token_error()
    line = 'OAuthBearerLoginModule required awsProfileName="team";'
    assert "The config profile (team) could not be found" in token_error(sasl_jaas_config=line)
    has_keys(aws)
    aws.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    aws.setenv("AWS_MAX_ATTEMPTS", "1")
    aws.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    line = 'OAuthBearerLoginModule required awsRoleArn="arn:aws:iam::1:role/x" awsRoleSessionName="job";'
    found = token_error(sasl_jaas_config=line)
    assert 'Could not connect to the endpoint URL: "http://127.0.0.1:1/"' in found
    assert KEY not in found + caplog.text
    text = f"The canonical string should have been 'x-amz-security-token:{SESSION}'"
    body = f"<R><Error><Code>SignatureDoesNotMatch</Code><Message>{text}</Message></Error></R>".encode()
    head = b"HTTP/1.1 403 No\r\nContent-Type: text/xml\r\nContent-Length: %d\r\n\r\n" % len(body)
    with EvilHttp(lambda connection, _: connection.sendall(head + body)) as server:
        aws.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.port}")
        found = token_error(sasl_jaas_config=line)
    assert "Amazon's service answers SignatureDoesNotMatch" in found and SESSION not in found + caplog.text
    aws.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafkalite\[msk\]'"):
        aws_tokens(object(), clock())()  # type: ignore[arg-type]


@pytest.mark.behaviour("kafkalite check", "It says what of IAM on MSK failed: credentials, or what the broker refuses")
def test_check_explains_what_failed(aws: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with secure_cluster(AUTHORITY.issue("127.0.0.1").pem()) as cluster:
        properties: dict[str, Any] = {
            "bootstrap.servers": address(cluster, "SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.certificates": AUTHORITY.pem,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.aws.region": "eu-west-1",
        }

        def failed() -> Finding:
            return next(
                each for each in check_all(CheckTarget(properties, ("t",)), "here") if each.status is Status.FAILED
            )

        assert "no token for MSK in eu-west-1" in failed().found
        LOGINS.forget()
        has_keys(aws)
        aws.setattr("botocore.auth.get_current_datetime", lambda *_, **__: datetime.datetime.now(datetime.UTC))
        refused = failed()
    # A broker that is not MSK's refuses Amazon's token.
    assert "invalid_token" in refused.found
    assert "allows kafka-cluster:Connect on this cluster" in refused.what_to_do
    assert KEY not in caplog.text and all(record.levelno < logging.ERROR for record in caplog.records)
