"""The authorized operations that clients receive: all of them, because this broker has no ACLs.

Pure; used by the handlers that describe topics, groups and the cluster. Bit n of a number represents the operation with
code n (KIP-430): 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10 describe configs,
11 alter configs, 12 idempotent write.
"""

from __future__ import annotations

from typing import Final

TOPIC: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
GROUP: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
CLUSTER: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
