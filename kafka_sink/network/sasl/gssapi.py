"""GSSAPI: authentication with a Kerberos ticket, without a security layer, as Kafka's brokers offer it.

The exchange runs on a selector's thread; the library may request tickets from the KDC there. Tickets of a keytab stay
in memory for the next exchange. Needs the package ``gssapi`` (``kafkalite[kerberos]``). No text shows keys or tickets.

Source: RFC 4752, RFC 4121; com.sun.security.sasl.gsskerb ``GssKrb5Client``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.common.errors import AuthenticationError

#: The security layer "none" in the bit mask that the server offers and the client answers with.
_NO_LAYER: Final = 1
_OFFER_BYTES: Final = 4

#: Part of a message of MIT's library → the remedy.
_ADVICE: Final = {
    "Server": "check {service}, and that the host name in bootstrap.servers and advertised.listeners is that of the "
    "broker's principal",
    "Clock skew": "set the clock of this machine",
    "contact any KDC": "check krb5.conf (KRB5_CONFIG), and the way to the KDC",
    "realm": "check the realm in krb5.conf (KRB5_CONFIG), and the principal",
    "Client": "check the principal",
    "Preauthentication failed": "the keytab is not that of the principal's present key; export it again",
    "keytab": "check keyTab and principal",
    "Key table": "check keyTab and principal",
    "expired": "renew the ticket (kinit -R, or kinit)",
    "credential": "run kinit, or set useKeyTab, keyTab and principal",
}


@dataclass(frozen=True)
class KerberosLogin:
    """The client principal, the service, and the source of the tickets: without a *keytab*, *ticket_cache*, by default
    the cache of the process."""

    service: str
    principal: str = ""
    keytab: str = ""
    ticket_cache: str = ""

    def store(self) -> dict[str, str]:
        """The credential store for the library: the keytab, and the ticket cache, in memory if there is a keytab."""
        if self.keytab:
            return {"client_keytab": self.keytab, "ccache": f"MEMORY:kafkalite {self.principal} {self.keytab}"}
        return {"ccache": self.ticket_cache} if self.ticket_cache else {}


class GssApiClient:
    """Authenticates with a ticket for *service* at *host*, and authenticates the broker by the service's key.

    *service_option* is the option that names the service, for errors.
    """

    #: None to redact: tickets and authenticators are encrypted, and an authenticator is valid once.
    secrets: tuple[str, ...] = ()

    def __init__(self, login: KerberosLogin, host: str, service_option: str) -> None:
        self._login = login
        self._host = host
        self._service_option = service_option
        self._library: Any = None
        self._context: Any = None
        self.complete = False

    def initial_response(self) -> bytes:
        try:
            import gssapi
        except ImportError as error:
            raise AuthenticationError(
                f"GSSAPI needs the package gssapi and the system's Kerberos library ({error}); "
                "pip install 'kafkalite[kerberos]'"
            ) from None
        library: Any = gssapi
        self._library = library
        try:
            self._context = self._begin(library)
            return bytes(self._context.step() or b"")
        except library.exceptions.GSSError as error:
            raise self._failure(error) from None

    def respond(self, challenge: bytes) -> bytes | None:
        if self.complete:
            if challenge:
                raise AuthenticationError("the broker continued the GSSAPI exchange after its end")
            return None
        try:
            if not self._context.complete:
                return bytes(self._context.step(challenge) or b"")
            return self._choose_layer(challenge)
        except self._library.exceptions.GSSError as error:
            raise self._failure(error) from None

    def _begin(self, gssapi: Any) -> Any:
        login = self._login
        name = None
        if login.principal:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(
            usage="initiate", name=name, mechs=[gssapi.MechType.kerberos], store=login.store() or None
        )
        return gssapi.SecurityContext(
            name=gssapi.Name(f"{login.service}@{self._host}", gssapi.NameType.hostbased_service),
            creds=credentials,
            mech=gssapi.MechType.kerberos,
            flags=[
                gssapi.RequirementFlag.mutual_authentication,
                gssapi.RequirementFlag.replay_detection,
                gssapi.RequirementFlag.out_of_sequence_detection,
                gssapi.RequirementFlag.integrity,
            ],
            usage="initiate",
        )

    def _choose_layer(self, challenge: bytes) -> bytes:
        offer = bytes(self._context.unwrap(challenge).message)
        if len(offer) != _OFFER_BYTES:
            raise AuthenticationError(f"the broker offers security layers in {len(offer)} bytes, expected 4")
        if not offer[0] & _NO_LAYER:
            raise AuthenticationError(
                "the broker demands a security layer of Kerberos, which Kafka does not have; use SASL_SSL to encrypt"
            )
        self.complete = True
        # Without a security layer the maximum size is 0; without an authorization id the broker uses the ticket's.
        return bytes(self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)), False).message)

    def _failure(self, error: Any) -> AuthenticationError:
        minor = ". ".join(error.get_all_statuses(error.min_code, False)).strip(". ")
        major = ". ".join(error.get_all_statuses(error.maj_code, True)).strip(". ")
        login = self._login
        cause = minor if minor and minor not in ("Success", "Unknown error") else major
        if login.keytab and cause.startswith("No "):
            # The library reports that there is no ticket, but not the cause.
            is_readable = os.access(login.keytab, os.R_OK)
            cause = "the keytab has no key of this principal" if is_readable else "the keytab cannot be read here"
        advice = next((what for part, what in _ADVICE.items() if part in cause), "check krb5.conf (KRB5_CONFIG)")
        whose = f"keytab {login.keytab}" if login.keytab else f"ticket cache {login.ticket_cache or 'of the process'}"
        return AuthenticationError(
            f"no Kerberos authentication as {login.principal or 'the default principal'} ({whose}) with "
            f"{login.service}/{self._host}: {cause}; {advice.format(service=self._service_option)}"
        )
