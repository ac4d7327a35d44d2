"""Keeps a token, and renews it before it expires: Kafka's login with credentials that expire.

The first thread that needs a token fetches it; a background thread fetches later ones, and runs as long as the login
has users. Several threads share a login. After a failure no request is sent for some seconds, so that thousands of
tasks with a wrong secret do not overload the endpoint.

Source: KIP-255, KIP-368; apache/kafka ``ExpiringCredentialRefreshingLogin``, ``LoginManager``.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.common.threads import StartThread, at_fork, start_loop
from kafka_sink.network.sasl.bearer_token import RefreshRules, Token

_log = logging.getLogger(__name__)

#: The pause after a failure (Kafka: DELAY_SECONDS_BEFORE_NEXT_RETRY_WHEN_RELOGIN_FAILS).
PAUSE_AFTER_FAILURE_MS: Final = 10_000
#: The wall clock may be set, or the machine may sleep, so the thread reads the clock at least this often. The thread
#: ends at most this long after the last user is gone.
_LONGEST_WAIT_MS: Final = 10_000

Fetch = Callable[[], Token]


class TokenUser:
    """A client's reference to a login, which renews its token as long as it has users."""

    def __init__(self, login: TokenLogin) -> None:
        self._login = login

    def token(self) -> Token:
        """See :meth:`TokenLogin.token`."""
        return self._login.token()


class TokenLogin:
    """The current token of *fetch*, and its renewal."""

    def __init__(
        self, fetch: Fetch, rules: RefreshRules, clock: Clock, *, start_thread: StartThread = start_loop
    ) -> None:
        self._fetch = fetch
        self._rules = rules
        self._clock = clock
        self._start_thread = start_thread
        # Guards the following attributes; notified when any of them changes.
        self._changed = threading.Condition()
        self._users: weakref.WeakSet[TokenUser] = weakref.WeakSet()
        self._token: Token | None = None
        self._refresh_at_ms = 0
        self._failure: AuthenticationError | None = None
        self._paused_until_ms = 0
        self._is_fetching = False
        self._has_thread = False
        self._has_ended = False

    def join(self) -> TokenUser:
        """A new user."""
        user = TokenUser(self)
        with self._changed:
            self._users.add(user)
        return user

    def is_needed(self, now_ms: int) -> bool:
        """Whether it has users, or a valid token, or a failure that is still reported."""
        with self._changed:
            is_valid = self._token is not None and now_ms < self._token.expires_ms
            return bool(self._users) or is_valid or self._is_paused()

    def token(self) -> Token:
        """The current token. If there is no valid one, the calling thread fetches it.

        :raises AuthenticationError: if the fetch fails, or has failed less than :data:`PAUSE_AFTER_FAILURE_MS` ago.
        """
        with self._changed:
            while True:
                if self._token is not None and self._clock.wall_ms() < self._token.expires_ms:
                    self._renew_in_background()
                    return self._token
                if self._failure is not None and self._is_paused():
                    # A new object: the traceback of an exception that is raised twice shows both places.
                    raise AuthenticationError(str(self._failure))
                if not self._is_fetching:
                    self._is_fetching = True
                    break
                self._clock.wait(self._changed, _LONGEST_WAIT_MS)
        self._fetch_now()
        with self._changed:
            # A token just fetched is returned even if it has expired already: the next one would have, too.
            if self._failure is not None or self._token is None:
                raise AuthenticationError(str(self._failure))
            self._renew_in_background()
            return self._token

    def run(self) -> None:
        """Renew the token until the login has no users, or the program ends."""
        while True:
            with self._changed:
                if self._has_ended or not self._users:
                    self._has_thread = False
                    return
                wait_ms = self._until_renewal_ms()
                if wait_ms > 0 or self._is_fetching:
                    self._clock.wait(self._changed, min(max(wait_ms, 1), _LONGEST_WAIT_MS))
                    continue
                self._is_fetching = True
            self._fetch_now()

    def end_with_program(self) -> None:
        """Make :meth:`run` return."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _renew_in_background(self) -> None:
        if not self._has_thread and not self._has_ended and self._users:
            self._has_thread = True
            self._start_thread("kafkalite-token-renewal", self)

    def _until_renewal_ms(self) -> int:
        if self._failure is not None and self._is_paused():
            return self._paused_until_ms - self._clock.monotonic_ms()
        return self._refresh_at_ms - self._clock.wall_ms()

    def _is_paused(self) -> bool:
        return self._clock.monotonic_ms() < self._paused_until_ms

    def _fetch_now(self) -> None:
        """Fetch a token, and record it or the failure."""
        token: Token | None = None
        failure: AuthenticationError | None = None
        try:
            token = self._fetch()
        except AuthenticationError as error:
            failure = error
        except ConfigError as error:
            failure = AuthenticationError(f"no OAUTHBEARER token: {error}")
        finally:
            self._note(token, failure)

    def _note(self, token: Token | None, failure: AuthenticationError | None) -> None:
        with self._changed:
            self._is_fetching = False
            self._failure = failure
            self._paused_until_ms = 0
            now_ms = self._clock.wall_ms()
            if token is not None:
                self._token = token
                self._refresh_at_ms = self._rules.refresh_at_ms(token, now_ms, random.random())
            elif failure is not None:
                self._paused_until_ms = self._clock.monotonic_ms() + PAUSE_AFTER_FAILURE_MS
                if self._token is not None and now_ms < self._token.expires_ms:
                    _log.warning(
                        "the token could not be renewed; the present one is valid for %d s more: %s",
                        (self._token.expires_ms - now_ms) // 1000,
                        failure,
                    )
            self._changed.notify_all()


class SharedLogins:
    """The logins of this process, one per credentials. A forked process begins without any."""

    def __init__(self) -> None:
        self.forget()
        at_fork(self, SharedLogins.forget)

    def forget(self) -> None:
        """Discard all logins."""
        self._lock = threading.Lock()
        self._salt = os.urandom(16)
        self._by_digest: dict[bytes, TokenLogin] = {}

    def join(self, credentials: Sequence[object], create: Callable[[], TokenLogin], now_ms: int) -> TokenUser:
        """A user of the login with these *credentials*, texts and numbers, of which only a digest is kept."""
        digest = hashlib.blake2b(repr(credentials).encode(), key=self._salt).digest()
        with self._lock:
            self._by_digest = {key: login for key, login in self._by_digest.items() if login.is_needed(now_ms)}
            login = self._by_digest.get(digest)
            if login is None:
                login = self._by_digest[digest] = create()
            return login.join()


#: The logins of this process.
LOGINS: Final = SharedLogins()
