"""The names of SASL mechanisms, for the options of clients and broker and for whoever speaks them.

Read anywhere, on any thread. It knows nothing of what a mechanism does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

#: What this project speaks.
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

#: What others speak, and what to use here.
REFUSED: Final[Mapping[str, str]] = {
    "GSSAPI": "Kerberos is not there, use SCRAM-SHA-512, OAUTHBEARER or mTLS",
    "AWS_MSK_IAM": (
        "MSK takes OAUTHBEARER too, with aws-msk-iam-sasl-signer-python in sasl.login.callback.handler.class"
    ),
}
