"""Fetching, renewing and sharing tokens, on a clock that only the test advances."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest

from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.common.threads import Loop
from kafka_sink.http.oauth.token_login import PAUSE_AFTER_FAILURE_MS, SharedLogins, TokenLogin
from kafka_sink.network.sasl.bearer_token import RefreshRules, Token, claims_of, encoded, token_of
from tests.fakes.clock import FakeClock, on_another_thread
from tests.support.cases import with_each

pytestmark = pytest.mark.behaviour("SASL", "Tokens are renewed ahead of time, as in Kafka, and never in a storm")

NO_JITTER = RefreshRules(window_jitter=0.0)


class Idle:
    """A thread that the test runs itself, or not at all."""

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool:
        return False


class Provider:
    """Returns tokens of *lifetime_ms*, or fails."""

    def __init__(self, clock: FakeClock, lifetime_ms: int = 3_600_000) -> None:
        self.clock = clock
        self.lifetime_ms = lifetime_ms
        self.asked = 0
        self.problem: Exception | None = None
        self.threads: list[Loop] = []

    def fetch(self) -> Token:
        self.asked += 1
        if self.problem is not None:
            raise self.problem
        return Token(f"token-{self.asked}", self.clock.wall_ms() + self.lifetime_ms)

    def start(self, name: str, loop: Loop) -> Idle:
        self.threads.append(loop)
        return Idle()

    def login(self, rules: RefreshRules = NO_JITTER) -> TokenLogin:
        return TokenLogin(self.fetch, rules, self.clock, start_thread=self.start)


@with_each(
    ("starts_s", "expires_s", "draw", "expected_s"),
    [
        (None, 10_000, 0.0, 8_000),
        (None, 10_000, 1.0, 8_500),
        # The lifetime starts when the token becomes valid, and not when it was fetched.
        (-10_000, 10_000, 0.0, 6_000),
        # 300 s before the expiry at the latest, and 60 s after the fetch at the earliest.
        (None, 1_000, 1.0, 700),
        (-9_000, 1_000, 0.0, 60),
        # Both limits are ignored for tokens with a shorter lifetime.
        (None, 359, 0.0, 287.2),
    ],
)
def test_renewal_is_due_when_kafkas_login_renews(
    starts_s: int | None, expires_s: int, draw: float, expected_s: float
) -> None:
    now_ms = 50_000_000
    starts_ms = None if starts_s is None else now_ms + starts_s * 1000
    token = Token("t", now_ms + expires_s * 1000, starts_ms=starts_ms)
    assert RefreshRules().refresh_at_ms(token, now_ms, draw) == now_ms + expected_s * 1000


def test_one_token_serves_until_its_thread_renews_it() -> None:
    clock = FakeClock()
    provider = Provider(clock)
    user = provider.login().join()
    assert [user.token().value, user.token().value] == ["token-1", "token-1"]
    (thread,) = provider.threads
    begin_ms = clock.now_ms

    def enough() -> None:
        clock.advance(10_000)
        if provider.asked < 3:
            clock.actions.append(enough)
        else:
            thread.end_with_program()

    clock.actions.append(enough)
    thread.run()
    # Two renewals, each after 80 % of an hour; the thread checks the clock every ten seconds.
    assert 2 * 2_880_000 <= clock.now_ms - begin_ms <= 2 * 2_900_000
    assert user.token().value == "token-3"


def test_failed_renewal_keeps_token_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    provider = Provider(clock, lifetime_ms=100_000)
    user = provider.login().join()
    user.token()
    provider.problem = AuthenticationError("the provider is away")
    clock.advance(81_000)
    (thread,) = provider.threads
    clock.actions.extend([lambda: clock.advance(PAUSE_AFTER_FAILURE_MS), thread.end_with_program])
    thread.run()
    assert provider.asked == 3
    assert user.token().value == "token-1"
    assert "the present one is valid for 19 s more: the provider is away" in caplog.text
    clock.advance(10_000)
    with pytest.raises(AuthenticationError, match="the provider is away"):
        user.token()


def test_wrong_secret_is_asked_once_in_ten_seconds(figure: Callable[[str, object], None]) -> None:
    clock = FakeClock()
    provider = Provider(clock)
    provider.problem = ConfigError("option x: no such file")
    users = [provider.login().join()] * 1000
    for user in users:
        with pytest.raises(AuthenticationError, match="no OAUTHBEARER token: option x: no such file"):
            user.token()
        clock.advance(9)
    figure("requests of 1,000 connections with a wrong secret in 9 s", provider.asked)
    assert provider.asked == 1
    clock.advance(1_000)
    provider.problem = None
    assert users[0].token().value == "token-2"


def test_threads_that_need_a_token_ask_once() -> None:
    clock = FakeClock(shared=True)
    provider = Provider(clock)
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> Token:
        begun.set()
        assert may_end.wait(60)
        return provider.fetch()

    user = TokenLogin(slow, NO_JITTER, clock, start_thread=provider.start).join()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(user.token().value), daemon=True) for _ in range(4)]
    threads[0].start()
    assert begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert found == ["token-1"] * 4
    assert len(provider.threads) == 1


def test_interrupted_fetch_lets_others_fetch() -> None:
    clock = FakeClock()
    provider = Provider(clock)
    user = provider.login().join()

    class Interrupt(BaseException):
        """A BaseException, like KeyboardInterrupt."""

    provider.problem = Interrupt()  # type: ignore[assignment]
    with pytest.raises(Interrupt):
        user.token()
    provider.problem = None
    assert user.token().value == "token-2"


def test_same_credentials_share_a_login_while_it_is_needed() -> None:
    clock = FakeClock()
    provider = Provider(clock)
    logins = SharedLogins()
    first = logins.join(("id", "s3cr3t"), provider.login, clock.now_ms)
    second = logins.join(("id", "s3cr3t"), provider.login, clock.now_ms)
    other = logins.join(("id", "other"), provider.login, clock.now_ms)
    assert [user.token().value for user in (first, second, other)] == ["token-1", "token-1", "token-2"]
    assert "s3cr3t" not in repr(vars(logins))
    del first, second
    gc.collect()
    # The next task of a worker gets the token of the previous task.
    later = logins.join(("id", "s3cr3t"), provider.login, clock.now_ms)
    assert later.token().value == "token-1"
    del later
    gc.collect()
    clock.advance(3_600_001)
    assert logins.join(("id", "s3cr3t"), provider.login, clock.now_ms).token().value == "token-3"


def test_thread_ends_with_the_last_user() -> None:
    clock = FakeClock()
    provider = Provider(clock)
    user = provider.login().join()
    user.token()
    (thread,) = provider.threads
    del user
    gc.collect()
    on_another_thread(thread.run)
    assert provider.asked == 1


def jwt(claims: dict[str, object]) -> str:
    return f"{encoded({'alg': 'none'})}.{encoded(claims)}."


@with_each(
    ("answer", "problem"),
    [
        ("no jwt", "characters that a token cannot have"),
        ("nojwt", "not a JWT"),
        ("[1].[2].", "not a JWT"),
        (("token", 1), "expired already"),
        (("token", 1e13), "seconds since 1970"),
        (("token", "soon"), "are not numbers"),
        (jwt({"exp": [1]}), "are not numbers"),
        (jwt({"exp": "2000000000"}), "are not numbers"),
        (jwt({}), "without an expiry time"),
        (("", 1e10), "return the token as text"),
        (None, "return the token as text"),
        ("a\1b.c.d", "characters that a token cannot have"),
    ],
)
def test_what_a_callback_returns_is_checked(answer: object, problem: str) -> None:
    with pytest.raises(AuthenticationError, match=problem):
        token_of(answer, 1_000_000_000)


def test_times_of_a_jwt_are_read() -> None:
    token = token_of(jwt({"exp": 2_000, "iat": 900}), 1_000_000)
    assert (token.starts_ms, token.expires_ms) == (900_000, 2_000_000)
    # The local clock is behind the provider's.
    assert token_of(jwt({"exp": 2_000, "iat": 1_100}), 1_000_000).starts_ms == 1_000_000
    assert claims_of(token.value)["exp"] == 2_000
