"""SCRAM-SHA-256 and SCRAM-SHA-512: mutual authentication with a password that is not transmitted.

Used by authenticators on their selector's thread; a first authentication with a password computes its iterations there.
Names and passwords are used unchanged: Kafka does not apply SASLprep, and applying it would reject users whose password
SASLprep changes.

Source: RFC 5802, RFC 7677; apache/kafka ``ScramSaslServer`` for the broker's error messages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final

from kafka_sink.common.errors import AuthenticationError
from kafka_sink.common.repeated_secrets import RepeatedSecrets
from kafka_sink.common.sasl_mechanisms import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    digest_of,
    escape_name,
    keyed,
    salted_password,
    unescape_name,
)
from kafka_sink.network.sasl.mechanism import NO_EXPIRY

_NONCE_BYTES: Final = 24
#: No channel binding, which brokers do not support: "n,,".
_GS2_HEADER: Final = "n,,"
_BASE64: Final = "[A-Za-z0-9+/]+={0,2}"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_SASL_NAME: Final = "(?:[^,=\0]|=2C|=3D)+"
_EXTENSIONS: Final = "(?:,[A-Za-z]=[^,\0]+)*"
_CLIENT_FIRST: Final = re.compile(
    f"(?P<gs2>n,(?:a=(?P<authzid>{_SASL_NAME}))?,)(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_SERVER_FIRST: Final = re.compile(
    f"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    f"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(f"(?:e=(?P<error>[^,\0]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


def new_nonce() -> str:
    """A nonce that cannot be guessed and contains no comma."""
    return secrets.token_urlsafe(_NONCE_BYTES)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


class ScramClient:
    """Proves knowledge of the password, and verifies the server's proof."""

    def __init__(self, mechanism: str, user_name: str, password: str, nonce: Callable[[], str] = new_nonce) -> None:
        self._digest = digest_of(mechanism)
        self._password = password
        self.secrets = (password,)
        self._nonce = nonce()
        self._first_bare = f"n={escape_name(user_name)},r={self._nonce}"
        self._server_signature: bytes | None = None
        self.complete = False

    def initial_response(self) -> bytes:
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        if self._server_signature is None:
            return self._prove(_text(challenge))
        self._check_server(_text(challenge))
        self.complete = True
        return None

    def _prove(self, server_first: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise AuthenticationError("the broker's first SCRAM message is malformed")
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise AuthenticationError(
                "the broker's SCRAM nonce does not begin with the client's nonce: the exchange may be a replay"
            )
        iterations = int(match["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {iterations} SCRAM iterations, expected {MIN_ITERATIONS} to {MAX_ITERATIONS}: "
                "fewer do not protect the password, more keep the client's CPU busy"
            )
        digest = self._digest
        salted = salted_password(digest, self._password, _decode(match["salt"]), iterations)
        final_bare = f"c={_encode(_GS2_HEADER.encode())},r={match['nonce']}"
        auth_message = f"{self._first_bare},{server_first},{final_bare}".encode()
        client_key = keyed(digest, salted, b"Client Key")
        stored_key = hashlib.new(digest, client_key).digest()
        proof = _xor(client_key, keyed(digest, stored_key, auth_message))
        self._server_signature = keyed(digest, keyed(digest, salted, b"Server Key"), auth_message)
        return f"{final_bare},p={_encode(proof)}".encode()

    def _check_server(self, server_final: str) -> None:
        match = _SERVER_FINAL.fullmatch(server_final)
        if match is None:
            raise AuthenticationError("the broker's final SCRAM message is malformed")
        if match["error"]:
            reason = RepeatedSecrets(self.secrets).hidden_in(match["error"])
            raise AuthenticationError(f"the broker refused the authentication: {reason}")
        assert self._server_signature is not None
        if not hmac.compare_digest(_decode(match["signature"]), self._server_signature):
            raise AuthenticationError(
                "the broker could not prove that it knows the password: it is not the broker that it claims to be"
            )


class ScramServer:
    """Verifies a client's proof against the credential that *find* returns for a user."""

    expires_ms = NO_EXPIRY

    def __init__(
        self, mechanism: str, find: Callable[[str], ScramCredential | None], nonce: Callable[[], str] = new_nonce
    ) -> None:
        self._digest = digest_of(mechanism)
        self._find = find
        self._new_nonce = nonce
        self._credential: ScramCredential | None = None
        self._nonce = ""
        self._gs2_header = ""
        self._messages = ""
        self._name = ""
        self.complete = False

    @property
    def user_name(self) -> str:
        return self._name if self.complete else ""

    def evaluate(self, response: bytes) -> bytes:
        if self._credential is None:
            return self._challenge(_text(response))
        return self._check(_text(response))

    def _challenge(self, client_first: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(client_first)
        if match is None:
            raise AuthenticationError("Invalid SCRAM client first message format")
        self._name = unescape_name(match["name"])
        if match["authzid"] and unescape_name(match["authzid"]) != self._name:
            raise AuthenticationError("Authentication failed: Client requested an authorization id that is different")
        self._credential = self._find(self._name)
        if self._credential is None:
            raise AuthenticationError(_REFUSED)
        self._gs2_header = match["gs2"]
        self._nonce = match["nonce"] + self._new_nonce()
        first = f"r={self._nonce},s={_encode(self._credential.salt)},i={self._credential.iterations}"
        self._messages = f"{match['bare']},{first}"
        return first.encode()

    def _check(self, client_final: str) -> bytes:
        match = _CLIENT_FINAL.fullmatch(client_final)
        credential = self._credential
        assert credential is not None
        if match is None or self.complete:
            raise AuthenticationError("Invalid SCRAM client final message format")
        # RFC 5802, 5.1: a message with another nonce or binding is a replay of another exchange.
        if match["nonce"] != self._nonce or _decode(match["binding"]) != self._gs2_header.encode():
            raise AuthenticationError("Invalid client nonce in the final client message")
        digest = self._digest
        auth_message = f"{self._messages},{match['bare']}".encode()
        signature = keyed(digest, credential.stored_key, auth_message)
        proof = _decode(match["proof"])
        if len(proof) != len(signature):
            raise AuthenticationError(_REFUSED)
        if not hmac.compare_digest(hashlib.new(digest, _xor(proof, signature)).digest(), credential.stored_key):
            raise AuthenticationError(_REFUSED)
        self.complete = True
        return f"v={_encode(keyed(digest, credential.server_key, auth_message))}".encode()


_REFUSED: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM"


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("Invalid SCRAM message: not UTF-8") from None


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationError("Invalid SCRAM message: not base64") from None
