"""All kinds of cases that Java judges, by their names in ``scripts/test.sh --fuzz``."""

from __future__ import annotations

from typing import Final

from tests.compat.java_judges.bootstrap_servers import BOOTSTRAP_SERVERS
from tests.compat.java_judges.compressed import COMPRESSED
from tests.compat.java_judges.identities import PRINCIPALS, TOKENS
from tests.compat.java_judges.jaas_lines import JAAS_LINES
from tests.compat.java_judges.judging import Judged
from tests.compat.java_judges.key_stores import KEY_STORES
from tests.compat.java_judges.producer_options import PRODUCER_OPTIONS
from tests.compat.java_judges.properties_files import PROPERTIES_FILES

JUDGED: Final[dict[str, Judged]] = {
    "Java: JAAS lines": JAAS_LINES,
    "Java: key stores": KEY_STORES,
    "Java: options of producers": PRODUCER_OPTIONS,
    "Java: properties files": PROPERTIES_FILES,
    "Java: bootstrap servers": BOOTSTRAP_SERVERS,
    "Java: principals of certificates": PRINCIPALS,
    "Java: tokens": TOKENS,
    "Java: compressed streams": COMPRESSED,
}
