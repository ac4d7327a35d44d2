"""The token endpoint of an identity provider on loopback: over HTTPS, with signed JWTs, and with every fault."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "kafka-job", "S3cr3t/of the+client"
KEY_ID = "key-1"


def in_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int) -> str:
    return in_base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class Issuer:
    """Signs tokens; without *key* they are unsecured, which embedded brokers accept."""

    key: rsa.RSAPrivateKey | None
    lifetime_s: float = 3600
    subject: str = "alice"

    def token(self) -> str:
        header = {"alg": "none"} if self.key is None else {"alg": "RS256", "kid": KEY_ID, "typ": "JWT"}
        now = time.time()
        claims = {"sub": self.subject, "iat": now, "exp": now + self.lifetime_s, "iss": "test", "aud": "kafka"}
        content = ".".join(in_base64(json.dumps(part).encode()) for part in (header, claims))
        if self.key is None:
            return f"{content}."
        return f"{content}.{in_base64(self.key.sign(content.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def jwks(self) -> str:
        assert self.key is not None
        numbers = self.key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": KEY_ID, "use": "sig", "alg": "RS256"}
        return json.dumps({"keys": [{**key, "n": _number(numbers.n), "e": _number(numbers.e)}]})


@dataclass(frozen=True)
class Asked:
    """A request that the endpoint got."""

    headers: dict[str, str]
    body: dict[str, list[str]]
    at: float


@dataclass
class TokenServer:
    """Its requests, and what it answers: the next of ``answers`` (status and body), or else a token for the client."""

    issuer: Issuer
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    answers: deque[tuple[int, Any]] = field(default_factory=deque)
    is_open: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: Asked) -> tuple[int, Any]:
        self.asked.append(request)
        self.is_open.wait(20)
        if self.answers:
            return self.answers.popleft()
        pair = base64.b64decode(request.headers.get("authorization", "")[6:]).decode()
        if pair != f"{CLIENT}:{SECRET}" and not {"client_assertion", "assertion"} & set(request.body):
            return 401, {"error": "invalid_client", "error_description": f"wrong secret in {pair}"}
        return 200, {"access_token": self.issuer.token(), "token_type": "Bearer", "expires_in": self.issuer.lifetime_s}


@contextlib.contextmanager
def token_server(issuer: Issuer, keystore: Path | None = None) -> Iterator[TokenServer]:
    """A running server; plain HTTP without a *keystore* (PEM)."""
    served = TokenServer(issuer)
    served.is_open.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, answer = served.answer(Asked(headers, parse_qs(body), time.monotonic()))
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if status == 302:
                    self.send_header("Location", "https://elsewhere.test/")
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if keystore is not None:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keystore)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    served.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/oauth/token?tenant=1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.is_open.set()
        server.shutdown()
        thread.join()
        server.server_close()
