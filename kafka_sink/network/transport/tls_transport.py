"""TLS over a non-blocking socket, as a transport; its errors say how to fix the cause. A client's principal is the
subject of its certificate, in Java's format.

Belongs to one channel and its selector's thread. OpenSSL uses two buffers in memory, so nothing blocks: bytes from the
socket go into one, and bytes that OpenSSL sends come out of the other. Bytes accepted from a frame may still be in the
buffer, encrypted: :meth:`TlsTransport.has_pending_writes` is true until the socket has them too. No byte is returned
before the handshake, with the verification of the peer's certificate, is complete.

Source: RFC 8446, RFC 5246; RFC 2253, ITU-T X.690 and the JDK's ``X500Principal.getName()``;
apache/kafka ``SslTransportLayer`` for the mapping of errors.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from kafka_sink.common.bounded import Cursor
from kafka_sink.common.errors import SslAuthenticationError
from kafka_sink.network.transport.transport import READ, WRITE, PlaintextTransport, Socket

#: The types that have a name in RFC 2253, by the bytes of their object identifiers.
_KEYWORDS: Final[Mapping[bytes, str]] = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x09": "STREET",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19": "DC",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01": "UID",
}
#: The tags of string types. Java 17 reads all as UTF-8, even BMPString, which has two bytes per character.
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_VERSION: Final = 0xA0
#: The maximum for an object identifier; in certificates they have about ten bytes.
_MOST_IDENTIFIER_BYTES: Final = 200


class _Element(NamedTuple):
    """A value in DER: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """The subject of a *certificate* in DER, the most specific part first; empty if it has none.

    :raises ValueError: if it is not a certificate.
    """
    (whole, *_) = _elements(certificate)
    (signed, *_) = _elements(whole.content)
    # Serial number, algorithm, issuer and validity come before it.
    _, _, _, _, subject, *_ = [element for element in _elements(signed.content) if element.tag != _VERSION]
    names = ["+".join(map(_shown, _elements(part.content))) for part in _elements(subject.content)]
    return ",".join(reversed(names))


def _elements(data: bytes) -> Iterator[_Element]:
    cursor = Cursor(data, _damaged)
    while cursor.left:
        start = len(data) - cursor.left
        tag, size = cursor.take(2)
        if size & 0x80:
            size = int.from_bytes(cursor.take(size & 0x7F))
        content = cursor.take(size)
        yield _Element(tag, content, data[start : len(data) - cursor.left])


def _damaged(problem: str) -> ValueError:
    return ValueError(f"the certificate is damaged: {problem}")


def _shown(pair: _Element) -> str:
    kind, value = _elements(pair.content)
    keyword = _KEYWORDS.get(kind.content)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or _dotted(kind.content)}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(errors='replace'))}"


def _dotted(identifier: bytes) -> str:
    if not 0 < len(identifier) <= _MOST_IDENTIFIER_BYTES:
        raise _damaged(f"it has an object identifier of {len(identifier)} bytes")
    numbers, number = [], 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise _damaged("an object identifier does not end")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escaped(text: str) -> str:
    inside = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r")) if inside else len(text)
    trail = len(text) - lead - len(inside)
    escaped = "".join(
        f"\\{character}" if character in ',=+<>#;"\\' else "\\00" if character == "\0" else character
        for character in inside
    )
    edges = ["".join(f"\\{character}" for character in part) for part in (text[:lead], text[len(text) - trail :])]
    return f"{edges[0]}{escaped}{edges[1]}"


_TRUST: Final = "set ssl.truststore.location to a PEM file with the authority that issued it"
#: OpenSSL's X509_V_ERR_… codes → how to fix the error.
_CERTIFICATE: Final = {
    7: f"its signature is not valid: its authority has the name of a trusted one, but another key; {_TRUST}",
    9: "it is not valid yet: check the clocks, and its validity period",
    10: "it has expired: renew it",
    18: "it is self-signed: use one issued by an authority, or add this one to ssl.truststore.location",
    19: f"its authority is not trusted: {_TRUST}",
    20: f"its authority is not trusted: {_TRUST}",
    21: f"its authority is not trusted: {_TRUST}",
    23: "it was revoked: issue a new one",
    26: "its extended key usage does not allow this: issue one for TLS servers (serverAuth) or clients (clientAuth)",
    79: "an issuer in its chain is not an authority (basic constraints): issue it with one that is",
}
_NAME_MISMATCH: Final = frozenset({62, 64})
_PLAINTEXT: Final = (
    "the other side does not speak TLS; if the port belongs to a PLAINTEXT or SASL_PLAINTEXT listener, set "
    "security.protocol to the protocol of that listener"
)
_OUR_CERTIFICATE: Final = "set ssl.keystore.location (or ssl.keystore.key and …chain) to one that the broker trusts"

_REASONS: Final = {
    "WRONG_VERSION_NUMBER": _PLAINTEXT,
    "HTTP_REQUEST": "the other side speaks HTTP",
    "PACKET_LENGTH_TOO_LONG": _PLAINTEXT,
    "RECORD_LAYER_FAILURE": _PLAINTEXT,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": f"the broker requires a client certificate: {_OUR_CERTIFICATE}",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, but ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": f"the other side does not trust the authority of our certificate: {_OUR_CERTIFICATE}",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": f"the other side does not accept our certificate: {_OUR_CERTIFICATE}",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"the other side does not accept our certificate: {_OUR_CERTIFICATE}",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side says that our certificate has expired: renew it",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the other side says that our certificate is not for this use",
    "TLSV1_ALERT_DECRYPT_ERROR": f"the other side found an invalid signature on our certificate: {_OUR_CERTIFICATE}",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "the other side refused the handshake: check ssl.cipher.suites, ssl.enabled.protocols, and whether it "
        "requires a client certificate (ssl.keystore.location)"
    ),
    "NO_SHARED_CIPHER": "no cipher suite in common: check ssl.cipher.suites and the key type of the certificate",
    "UNSUPPORTED_PROTOCOL": "no TLS version in common: check ssl.enabled.protocols",
    "TLSV1_ALERT_PROTOCOL_VERSION": "no TLS version in common: check ssl.enabled.protocols",
}
#: Bytes passed to OpenSSL per call, which splits them into records of 16 kB: each call releases the GIL and has to
#: acquire it again. With more bytes, OpenSSL's buffer grows in steps that cost more than these calls.
_PIECE_BYTES: Final = 64 * 1024
#: Encrypted bytes that may wait for the socket before encryption pauses.
_AHEAD_BYTES: Final = 256 * 1024
_READ_BYTES: Final = 64 * 1024
_CLOSED_EARLY: Final = (
    "closed by the other side during the TLS handshake; check that the port belongs to a TLS listener, as "
    "security.protocol says, and that it supports one of the enabled TLS versions"
)


def explain(error: ssl.SSLError, peer_host: str, server_side: bool) -> str:
    """The cause of *error* and how to fix it; *peer_host* is the host to which we meant to connect."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, peer_host, server_side)
    reason = error.reason or str(error)
    return _REASONS.get(reason, reason.replace("_", " ").lower())


def _explain_certificate(error: ssl.SSLCertVerificationError, peer_host: str, server_side: bool) -> str:
    whose = "the client's certificate" if server_side else f"the certificate of {peer_host}"
    if error.verify_code in _NAME_MISMATCH:
        return (
            f"{whose} is not valid for this host name: connect to one of the names in it, or issue one whose "
            f"subject alternative names contain {peer_host}; an empty ssl.endpoint.identification.algorithm "
            "disables the check"
        )
    todo = _CERTIFICATE.get(error.verify_code, "issue a valid one")
    return f"{whose} was refused ({error.verify_message}): {todo}"


class TlsTransport(PlaintextTransport):
    """Bytes over TLS. *peer_host* is the name that the peer's certificate must match (accepting side: none)."""

    def __init__(
        self, sock: Socket, *, connected: bool, context: ssl.SSLContext, server_side: bool, peer_host: str
    ) -> None:
        super().__init__(sock, connected=connected)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=None if server_side else peer_host
        )
        self._server_side = server_side
        self._peer_host = peer_host
        self._unsent: memoryview = memoryview(b"")
        self._is_agreed = False
        self._is_handshake_over = False
        self._has_received = False
        self._may_have_more = False

    @property
    def ready(self) -> bool:
        return self._is_handshake_over

    @property
    def handshake_events(self) -> int:
        return WRITE if self.has_pending_writes() else READ

    def handshake(self) -> None:
        """See :class:`~kafka_sink.network.transport.transport.TransportLayer`.

        :raises SslAuthenticationError: if the peer's certificate is not trusted, or the peer rejects ours.
        """
        try:
            while not self._is_agreed:
                try:
                    self._tls.do_handshake()
                    self._is_agreed = True
                except ssl.SSLWantReadError:
                    if not self._flush() or not self._fetch():
                        return
            # The peer may need our last handshake message before it sends anything.
            self._is_handshake_over = self._may_have_more = self._flush()
        except (EOFError, ssl.SSLEOFError):
            raise ConnectionError(_CLOSED_EARLY) from None
        except ssl.SSLError as error:
            # Send the alert to the peer.
            with contextlib.suppress(OSError):
                self._flush()
            raise self._refusal(error) from None

    @property
    def peer_subject(self) -> str | None:
        """The subject of the peer's certificate as Java writes it (RFC 2253); None if it has sent none."""
        shown = self._tls.getpeercert(binary_form=True) if self._is_handshake_over else None
        return None if shown is None else subject_of(shown)

    def read_into(self, target: memoryview) -> int:
        filled = 0
        self._may_have_more = False
        try:
            while filled < len(target):
                try:
                    # With a buffer, read() returns a number, contrary to its signature.
                    count = cast("int", self._tls.read(len(target) - filled, target[filled:]))
                except ssl.SSLWantReadError:
                    if not self._fetch():
                        break
                    continue
                if count == 0:
                    raise EOFError("closed by the other side")
                filled += count
            else:
                # Only the next read can determine whether more bytes are left.
                self._may_have_more = True
        except (EOFError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
            if not filled:
                raise EOFError("closed by the other side") from None
            self._may_have_more = True
        except ssl.SSLError as error:
            raise self._broken(error) from None
        self._has_received = self._has_received or filled > 0
        return filled

    def write(self, buffers: Sequence[memoryview]) -> int:
        taken = 0
        try:
            if not self._flush():
                return 0
            for piece in _pieces(buffers):
                taken += self._tls.write(piece)
                if self._outgoing.pending >= _AHEAD_BYTES and not self._flush():
                    return taken
            self._flush()
        except ssl.SSLError as error:
            raise self._broken(error) from None
        except (ConnectionResetError, BrokenPipeError):
            self._raise_last_words()
            raise
        return taken

    def has_pending_writes(self) -> bool:
        return len(self._unsent) > 0 or self._outgoing.pending > 0

    def has_bytes_buffered(self) -> bool:
        return self._may_have_more

    def close(self) -> None:
        """Send pending bytes and a close_notify alert, as far as possible without blocking; then close."""
        if self._is_agreed:
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
        with contextlib.suppress(OSError, ValueError):
            self._flush()
        super().close()

    def _flush(self) -> bool:
        """Send the bytes that OpenSSL has encrypted; False if the socket accepts no more now."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]
        return True

    def _fetch(self) -> bool:
        """Pass bytes from the socket to OpenSSL; False if there are none now.

        :raises EOFError: if the peer has closed.
        """
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            raise EOFError("closed by the other side")
        self._incoming.write(data)
        return True

    def _raise_last_words(self) -> None:
        """Raise the peer's rejection of our certificate, whose alert may arrive while we write (TLS 1.3)."""
        if not self._has_received:
            with contextlib.suppress(EOFError, ConnectionError):
                self.read_into(memoryview(bytearray(1)))

    def _broken(self, error: ssl.SSLError) -> OSError | SslAuthenticationError:
        # In TLS 1.3 the peer verifies our certificate after our handshake is complete.
        if not self._has_received:
            return self._refusal(error)
        return ConnectionError(f"TLS failed: {explain(error, '', self._server_side)}")

    def _refusal(self, error: ssl.SSLError) -> SslAuthenticationError:
        return SslAuthenticationError(f"TLS failed: {explain(error, self._peer_host, self._server_side)}")


def _pieces(buffers: Sequence[memoryview]) -> Iterator[bytes | memoryview]:
    """*buffers* in pieces of one size: small buffers are joined, large ones are not copied."""
    gathered: list[memoryview] = []
    room = _PIECE_BYTES
    for buffer in buffers:
        rest = buffer
        while len(rest):
            gathered.append(rest[:room])
            rest = rest[room:]
            room -= len(gathered[-1])
            if not room:
                yield gathered[0] if len(gathered) == 1 else b"".join(gathered)
                gathered, room = [], _PIECE_BYTES
    if gathered:
        yield b"".join(gathered)
