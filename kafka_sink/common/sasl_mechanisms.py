"""The names of SASL mechanisms, for the options of clients and brokers and for the implementations.

Any thread may read them. This module does not depend on the implementations.
"""

from __future__ import annotations

from typing import Final

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

SCRAM_MECHANISMS: Final = (SCRAM_SHA_256, SCRAM_SHA_512)

#: Kerberos.
GSSAPI: Final = "GSSAPI"
#: Amazon's name of a mechanism of its own, for which its brokers also take tokens.
AWS_MSK_IAM: Final = "AWS_MSK_IAM"

#: The mechanisms that this project implements, for clients and brokers.
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)

#: Names that clients may give besides: AWS_MSK_IAM stands for OAUTHBEARER.
OF_CLIENTS: Final = (*MECHANISMS, GSSAPI, AWS_MSK_IAM)
