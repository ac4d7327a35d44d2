"""Creates the ``SSLContext`` from ``ssl.*`` options, and again when a file or the value of a reference has changed.

Created together with the channel builders; their selectors' threads call it for every new connection. It only reads
files. If the system supports memory files, a private key given as an option is never written to disk.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kafka_sink.common.config import resolved
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.tls_config import JKS, PEM, PKCS12, TLS_1_2, TLS_1_3, SslConfig
from kafka_sink.trust.key_stores import MAGIC, KeyStoreError, key_and_chain, trusted_certificates
from kafka_sink.trust.pem import decrypted, rebuilt

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
#: The first bytes of key stores that are not PEM; PKCS12 starts like any DER sequence.
_STORE_TYPES: Final = {MAGIC: JKS, b"\x30\x82": PKCS12, b"\x30\x80": PKCS12}
#: Time of change, size, inode and mode of each file.
_Stamp = tuple[tuple[int, int, int, int], ...]


class TlsContexts:
    """The ``SSLContext`` for new connections; *prefix* is the prefix of option names in errors.

    The accepting side requests client certificates according to *client_auth* (``ssl.client.auth``). The connecting
    side checks that the certificate matches the host name, if *config* does not turn that off.

    :raises ConfigError: if a file cannot be read, is not PEM or has unexpected content; or if a cipher suite is
        unknown.
    """

    def __init__(self, config: SslConfig, *, server: bool, client_auth: str = "none", prefix: str = "") -> None:
        self._given = config
        self._config = resolved(config, prefix)
        self._server = server
        self._client_auth = client_auth
        self._prefix = prefix
        self._log = ContextLogger(__name__, "")
        self._files = [Path(name) for name in (config.ssl_truststore_location, config.ssl_keystore_location) if name]
        # Guards the following attributes, because the processors of a listener share this object.
        self._lock = threading.Lock()
        self._stamp = self._stamp_now()
        self._context = self._build()
        self._warn_of_writable_files()
        if not config.checks_names:
            self._log.warning(
                "%sssl.endpoint.identification.algorithm is empty: a certificate for any host name is accepted, so "
                "every owner of a certificate of a trusted authority can impersonate the server; set it to https",
                prefix,
            )

    @property
    def server(self) -> bool:
        """Whether it is for the accepting side."""
        return self._server

    def current(self) -> ssl.SSLContext:
        """The context for the current content of the files and values of references; the last valid context while they
        are being replaced."""
        with self._lock:
            try:
                config, stamp = resolved(self._given, self._prefix), self._stamp_now()
                if (config, stamp) != (self._config, self._stamp):
                    self._config, self._stamp = config, stamp
                    self._context = self._build()
                    self._log.info("the TLS files have changed: new connections use them")
            except ConfigError as error:
                self._log.warning(
                    "the TLS files have changed, but they cannot be used; the previous ones stay in use: %s", error
                )
            return self._context

    def _stamp_now(self) -> _Stamp:
        stats = []
        for path in self._files:
            try:
                status = path.stat()
            except OSError as error:
                raise ConfigError(
                    f"cannot read {path}, which option {self._option_of(path)} names: {error.strerror}",
                    option=self._option_of(path),
                ) from None
            stats.append((status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode))
        return tuple(stats)

    def _warn_of_writable_files(self) -> None:
        # A file may be replaced at any time, so its mode is the one that was read with its stamp.
        for path, (*_, mode) in zip(self._files, self._stamp, strict=True):
            if mode & stat.S_IWOTH:
                self._log.warning(
                    "option %s: every user of this machine can write to %s, and so add trusted certificates; "
                    "run chmod o-w",
                    self._option_of(path),
                    path,
                )

    def _option_of(self, path: Path) -> str:
        kind = "truststore" if str(path) == self._config.ssl_truststore_location else "keystore"
        return f"{self._prefix}ssl.{kind}.location"

    # -- building

    def _build(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self._server else ssl.PROTOCOL_TLS_CLIENT)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        self._choose_versions(context)
        self._trust(context)
        self._identify(context)
        if self._server:
            context.verify_mode = _CLIENT_AUTH[self._client_auth]
        else:
            # RFC 9110 does not use the subject's common name: a certificate is valid for the names in its SAN
            # extension.
            context.hostname_checks_common_name = False
            context.check_hostname = self._config.checks_names
        return context

    def _choose_versions(self, context: ssl.SSLContext) -> None:
        versions = set(self._config.ssl_enabled_protocols)
        suites = self._config.ssl_cipher_suites
        if suites:
            option = f"{self._prefix}ssl.cipher.suites"
            versions.discard(TLS_1_3)
            if not versions:
                raise ConfigError.of(option, ": the cipher suites of TLS 1.3 cannot be chosen; remove the option")
            try:
                context.set_ciphers(":".join(map(openssl_name, suites)))
            except ssl.SSLError:
                raise ConfigError.of(option, f": OpenSSL supports none of {', '.join(suites)} for TLS 1.2") from None
            known = {suite["name"] for suite in context.get_ciphers() if suite["protocol"] != TLS_1_3}
            unused = [name for name in suites if name.startswith("TLS_") and openssl_name(name) not in known]
            if unused:
                self._log.warning("%s: not for TLS 1.2, or not OpenSSL's, and left out: %s", option, ", ".join(unused))
        context.minimum_version = _VERSIONS[min(versions)]
        context.maximum_version = _VERSIONS[max(versions)]

    def _trust(self, context: ssl.SSLContext) -> None:
        config = self._config
        location, text = config.ssl_truststore_location, config.ssl_truststore_certificates
        name = f"{self._prefix}ssl.truststore.location"
        if location and text:
            raise ConfigError(
                f"{name} and {self._prefix}ssl.truststore.certificates are both set; remove one of them", option=name
            )
        if not location and not text:
            if not self._server:
                context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            elif self._client_auth != "none":
                raise ConfigError(
                    f"ssl.client.auth={self._client_auth} needs {name} to verify the certificates of clients",
                    option="ssl.client.auth",
                )
            return
        # As in Java, any certificate in the truststore is trusted, even a broker's own certificate that is not a CA.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        pem = text
        if location:
            pem = self._content("truststore", location, trusted_certificates)
        else:
            self._check_text_type("truststore", config.ssl_truststore_type)
        try:
            context.load_verify_locations(cadata=rebuilt(pem))
        except (ssl.SSLError, ValueError):
            option = name if location else f"{self._prefix}ssl.truststore.certificates"
            shown = f"{name}={location}" if location else option
            raise ConfigError(f"option {shown}: it contains no readable certificate", option=option) from None
        if not context.cert_store_stats()["x509"]:
            raise ConfigError.of(name, ": it contains no certificate")

    def _identify(self, context: ssl.SSLContext) -> None:
        config = self._config
        location = config.ssl_keystore_location
        given_as_text = bool(config.ssl_keystore_key or config.ssl_keystore_certificate_chain)
        prefix = f"{self._prefix}ssl.keystore"
        if location and given_as_text:
            raise ConfigError(
                f"{prefix}.location and {prefix}.key are both set; remove one of them", option=f"{prefix}.location"
            )
        if not location and not given_as_text:
            if self._server:
                raise ConfigError(
                    f"a TLS listener needs {prefix}.location: a PEM file with its private key and certificates",
                    option=f"{prefix}.location",
                )
            return
        where = f"option {prefix}.location: {location}"
        if not location:
            self._check_text_type("keystore", config.ssl_keystore_type)
        if location:
            pem = self._content(
                "keystore", location, lambda data, password: key_and_chain(data, password, config.ssl_key_password)
            )
        elif config.ssl_keystore_key and config.ssl_keystore_certificate_chain:
            pem = f"{config.ssl_keystore_key}\n{config.ssl_keystore_certificate_chain}\n"
            where = f"options {prefix}.key and {prefix}.certificate.chain"
        else:
            raise ConfigError(
                f"{prefix}.key and {prefix}.certificate.chain belong together; set both", option=f"{prefix}.key"
            )
        self._load(context, pem, where)

    def _content(self, kind: str, location: str, read: Callable[[bytes, str], str]) -> str:
        """The PEM text of a file, or of a Java key store, which *read* converts with its password.

        :raises ConfigError: if it cannot be read, or is not of the type in the options.
        """
        name = f"{self._prefix}ssl.{kind}"
        try:
            data = Path(location).read_bytes()
        except OSError as error:
            raise ConfigError.of(f"{name}.location", f": cannot read {location}: {error.strerror}") from None
        of_java = next((store_type for start, store_type in _STORE_TYPES.items() if data.startswith(start)), "")
        configured: str = getattr(self._config, f"ssl_{kind}_type")
        password: str = getattr(self._config, f"ssl_{kind}_password")
        if (configured or of_java or PEM) != PEM:
            try:
                return read(data, password)
            except KeyStoreError as error:
                passwords = f"; check {name}.password" if error.is_about_password else ""
                if passwords and kind == "keystore":
                    passwords += f" and {self._prefix}ssl.key.password"
                problem = f": {location} cannot be used: {error}{passwords}"
                raise ConfigError.of(f"{name}.location", problem) from None
        if b"-----BEGIN " not in data:
            hint = f", expected PEM; set {name}.type={of_java}" if of_java else ", expected PEM, JKS or PKCS12"
            raise ConfigError.of(f"{name}.location", f": {location} is {of_java or 'not a PEM file'}{hint}")
        if password:
            own = " (that of the private key is ssl.key.password)" if kind == "keystore" else ""
            raise ConfigError(
                f"{name}.password is for JKS and PKCS12, and {location} is PEM; remove the password{own}",
                option=f"{name}.password",
            )
        return data.decode("latin-1")

    def _check_text_type(self, kind: str, configured: str) -> None:
        """:raises ConfigError: if a type other than PEM is set although the option has text instead of a file."""
        if configured not in ("", PEM):
            raise ConfigError.of(
                f"{self._prefix}ssl.{kind}.type", f"={configured} is for files; remove it, because PEM text is given"
            )

    def _load(self, context: ssl.SSLContext, pem: str, where: str) -> None:
        password, option = self._config.ssl_key_password, f"{self._prefix}ssl.key.password"
        is_encrypted = False

        def ask() -> str:
            nonlocal is_encrypted
            is_encrypted = True
            return password

        try:
            with _memory_file(rebuilt(pem)) as path:
                context.load_cert_chain(path, password=ask)
        except (ssl.SSLError, OSError, ValueError) as error:
            if is_encrypted and not password:
                raise ConfigError(
                    f"{where}: {option} is required: the private key is encrypted", option=option
                ) from None
            if is_encrypted:
                self._load(context, self._decrypted(pem, where), where)
                return
            reason = error if type(error) is ValueError else getattr(error, "reason", None)
            reason = reason or "no private key with its certificate"
            raise ConfigError(
                f"{where} cannot be used: {reason}; it must contain a private key (PKCS #8) and its certificates, PEM"
            ) from None

    def _decrypted(self, pem: str, where: str) -> str:
        try:
            return decrypted(pem, self._config.ssl_key_password)
        except KeyStoreError as error:
            what = (
                f": {self._prefix}ssl.key.password is not the password of the private key"
                if error.is_about_password
                else f" cannot be used: {error}"
            )
            raise ConfigError(f"{where}{what}", option=f"{self._prefix}ssl.key.password") from None


def openssl_name(suite: str) -> str:
    """OpenSSL's name for the IANA name of a TLS 1.2 *suite*, as used in Kafka; other names are returned unchanged."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20-POLY1305"
    # OpenSSL omits RSA key exchange, its original one, and the mode of suites with only one mode.
    parts = [] if exchange == "RSA" else [exchange.replace("_", "-")]
    return "-".join([*parts, cipher.replace("_CBC", "").replace("_", "-")])


@contextlib.contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """A temporary path with *text* as content, because OpenSSL reads keys only from paths."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("keystore")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name
