"""Which version of Spark the tests run on, and what they ask of it.

``scripts/test.sh --spark V`` chooses another than that of the environment. A test that needs what older versions lack
names it, so that its skip says which version it takes and why.
"""

from __future__ import annotations

from typing import Final

import pyspark
import pytest

from kafka_sink.common.requirements import parse_version

VERSION: Final = parse_version(pyspark.__version__)

#: Whether ``format("kafkalite")`` exists.
HAS_DATA_SOURCES: Final = VERSION >= (4, 0)


def requires_spark(oldest: str, what: str) -> pytest.MarkDecorator:
    """Skip the test on versions before *oldest*, which is the first one with *what*."""
    return pytest.mark.skipif(
        parse_version(oldest) > VERSION, reason=f"needs Spark {oldest}: {what}, and this is {pyspark.__version__}"
    )


#: For a test of ``df.write.format`` or ``writeStream.format``.
requires_data_sources: Final = requires_spark("4.0", "Python data sources")
