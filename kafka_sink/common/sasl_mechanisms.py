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

#: Amazon's name of a mechanism of its own, for which its brokers also take tokens.
AWS_MSK_IAM: Final = "AWS_MSK_IAM"

#: The mechanisms that this project implements, for clients and brokers.
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)

#: Names that clients may give: AWS_MSK_IAM stands for OAUTHBEARER.
OF_CLIENTS: Final = (*MECHANISMS, AWS_MSK_IAM)

#: Mechanisms that are not implemented, with their alternatives.
REFUSED: Final[Mapping[str, str]] = {
    "GSSAPI": "Kerberos is not supported, use SCRAM-SHA-512, OAUTHBEARER or mTLS",
}
