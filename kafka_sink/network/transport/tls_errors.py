"""Explains TLS errors and how to fix them.

The transport calls it when OpenSSL reports an error. It never raises, and never reveals more of a certificate than
OpenSSL does.
"""

from __future__ import annotations

import ssl
from typing import Final

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
