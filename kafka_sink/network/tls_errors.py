"""Explains TLS errors and how to fix them.

The transport calls it when OpenSSL reports an error. It never raises, and never reveals more of a certificate than
OpenSSL does.
"""

from __future__ import annotations

import ssl
from typing import Final

_TRUST: Final = "ssl.truststore.location has to name a PEM file with the authority that issued it"
#: OpenSSL's X509_V_ERR_… codes → how to fix the error.
_CERTIFICATE: Final = {
    7: "its signature is false: another authority of the same name has issued it than the one that is trusted",
    9: "its time has not come: look at the clocks, or at the dates that it was made with",
    10: "it has to be renewed",
    18: "it is signed by nobody but itself: issue one with an authority, or put this one into ssl.truststore.location",
    19: f"its authority is not trusted: {_TRUST}",
    20: f"its authority is not trusted: {_TRUST}",
    21: f"its authority is not trusted: {_TRUST}",
    23: "it was revoked: issue a new one",
    26: "its extended key usage does not allow this: issue one for TLS servers (serverAuth) or clients (clientAuth)",
    79: "an authority in its chain is no authority (basic constraints): issue it with one that is",
}
_NAME_MISMATCH: Final = frozenset({62, 64})
_PLAINTEXT: Final = (
    "the other side does not speak TLS; is that the port of a PLAINTEXT or SASL_PLAINTEXT listener? security.protocol "
    "has to be the listener's"
)
_OUR_CERTIFICATE: Final = "give one that the broker trusts in ssl.keystore.location (ssl.keystore.key and …chain)"

_REASONS: Final = {
    "WRONG_VERSION_NUMBER": _PLAINTEXT,
    "HTTP_REQUEST": "the other side speaks HTTP",
    "PACKET_LENGTH_TOO_LONG": _PLAINTEXT,
    "RECORD_LAYER_FAILURE": _PLAINTEXT,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": f"the broker wants to see a certificate: {_OUR_CERTIFICATE}",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": f"the other side does not trust our certificate's authority: {_OUR_CERTIFICATE}",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": f"the other side does not accept our certificate: {_OUR_CERTIFICATE}",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"the other side does not accept our certificate: {_OUR_CERTIFICATE}",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side says that our certificate has expired: renew it",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the other side says that our certificate is not for this use",
    "TLSV1_ALERT_DECRYPT_ERROR": f"the other side finds a signature of our certificate false: {_OUR_CERTIFICATE}",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "the other side finds nothing in common: look at ssl.cipher.suites, ssl.enabled.protocols and whether it wants "
        "to see a certificate of ours (ssl.keystore.location)"
    ),
    "NO_SHARED_CIPHER": "no cipher suite in common: look at ssl.cipher.suites and at the certificate's kind of key",
    "UNSUPPORTED_PROTOCOL": "no version of TLS in common: look at ssl.enabled.protocols",
    "TLSV1_ALERT_PROTOCOL_VERSION": "no version of TLS in common: look at ssl.enabled.protocols",
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
            f"{whose} is not for this name: connect by one of the names in it, or issue one whose subject alternative "
            f"names list {peer_host}; only an empty ssl.endpoint.identification.algorithm leaves names unchecked"
        )
    todo = _CERTIFICATE.get(error.verify_code, "issue one that holds")
    return f"{whose} is refused ({error.verify_message}): {todo}"
