"""Brokers with damaged responses to a Kerberos login, with a real KDC."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kafka_sink.common.errors import AuthenticationError
from kafka_sink.network.sasl.gssapi import GssApiClient, KerberosLogin
from tests.hostile.records import damaged
from tests.hostile.servers import OPEN
from tests.support.kdc import BROKER, USER, Kdc, running_kdc

_OFFERS: Final = (b"\1\0\0\0", b"\7\0\xff\xff", b"\6\0\xff\xff", b"\0\0\0\0", b"\1", b"", b"\1" * 1_000)

_PROOF_BYTES: Final = 100


@cache
def _kdc() -> Kdc:
    return OPEN.enter_context(running_kdc(Path(OPEN.enter_context(TemporaryDirectory())) / "kdc"))


def kerberos_answers(rng: random.Random) -> None:
    """A login succeeds only if the broker has the service's key and needs no layer; otherwise it raises our error."""
    import gssapi

    kdc, library = _kdc(), gssapi
    client = GssApiClient(KerberosLogin("kafka", USER, str(kdc.keytab(USER))), "127.0.0.1", "opt")
    keys: Any = {"keytab": str(kdc.keytab(BROKER))}
    broker: Any = library.SecurityContext(creds=library.Credentials(usage="accept", store=keys), usage="accept")
    offer, wrong_at = rng.choice(_OFFERS), rng.randrange(4)
    steps = [bytes(broker.step(client.initial_response()))]
    steps.append(bytes(broker.wrap(offer, False).message))
    steps.append(b"")
    said = [damaged(rng, step) if number == wrong_at else step for number, step in enumerate(steps)]
    if rng.random() < 0.2:
        rng.shuffle(said)
    try:
        for each in said:
            client.respond(each)
    except AuthenticationError:
        return
    # The encrypted end of the AP-REP is its proof (RFC 4120, 5.5.2); the library skips the fields before it. A wrapped
    # offer may be rotated (RFC 4121, 4.2.5), so different bytes may mean the same.
    assert client.complete and steps[0][-_PROOF_BYTES:] in said[0] and len(offer) == 4 and offer[0] & 1
