"""The names of SASL mechanisms, for the options of clients and brokers and for the implementations.

Any thread may read them. This module does not depend on the implementations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

#: The mechanisms that this project implements.
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

#: Mechanisms that are not implemented, with their alternatives.
REFUSED: Final[Mapping[str, str]] = {
    "GSSAPI": "Kerberos is not supported, use SCRAM-SHA-512, OAUTHBEARER or mTLS",
    "AWS_MSK_IAM": (
        "use OAUTHBEARER, which MSK accepts, with aws-msk-iam-sasl-signer-python in sasl.login.callback.handler.class"
    ),
}
