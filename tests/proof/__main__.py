"""The command of the ledger, which ``scripts/prove.sh`` runs and describes."""

from __future__ import annotations

import argparse
import fnmatch
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scripts.pages import print_into
from tests.proof.ledger import RECORDS, Ledger, Sources, Standing
from tests.proof.parts import PARTS, ROOT, Part
from tests.proof.running import run
from tests.proof.table import table

PAGE: Final = "docs/versions.md"


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="scripts/prove.sh", description="The ledger of what is proven.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="run these parts; * stands for anything")
    parser.add_argument("--list", action="store_true", help="print all parts")
    parser.add_argument("--stale", action="store_true", help="print the parts that are due; exits with 1 if one is")
    parser.add_argument("--table", action="store_true", help="write the table into docs/versions.md")
    parser.add_argument("--minutes", type=float, help="run parts that are due for so long, the riskiest first")
    asked = parser.parse_args(arguments)
    ledger = Ledger(root / RECORDS)
    if asked.table:
        print_into(root / PAGE, "proof", table(parts, ledger))
        return 0
    sources = Sources(root)
    standings = {part: ledger.standing(part, sources) for part in parts}
    if asked.list or asked.stale:
        shown = [part for part in parts if asked.list or standings[part] is not Standing.PROVEN]
        for part in shown:
            print(_line(part, standings[part], ledger))
        return int(asked.stale and any(standing.is_due for standing in standings.values()))
    chosen = [part for part in parts if any(fnmatch.fnmatchcase(part.name, name) for name in asked.names)]
    if asked.minutes is not None:
        chosen = [part for part in chosen or parts if standings[part].is_due]
        chosen.sort(key=lambda part: (part.risk, part.minutes))
    elif not chosen:
        parser.error(f"no part has the name {' or '.join(asked.names) or '(none was given)'}; --list prints them")
    if changed := sources.changed():
        print(f"commit first, because a record is of a commit; changed: {', '.join(changed)}", file=sys.stderr)
        return 2
    return _run_all(chosen, asked.minutes, ledger, parts, root)


def _run_all(chosen: Sequence[Part], minutes: float | None, ledger: Ledger, parts: Sequence[Part], root: Path) -> int:
    """Run as many of *chosen* as *minutes* allow (None: all). When each has ended, write its record, and the table: the
    part of all tests, which compares the two, may be next."""
    begun, worst = time.monotonic(), 0
    for part in chosen:
        before = ledger.get(part)
        needed = before.seconds / 60 if before is not None else part.minutes
        if minutes is not None and (time.monotonic() - begun) / 60 + needed > minutes:
            print(f"{part.name}: left for another time ({needed:.0f} min)")
            continue
        print(f"{part.name}: {' '.join(part.command)} (about {needed:.0f} min) …", flush=True)
        record = run(part, root, sources := Sources(root))
        if record is None:
            print(f"{part.name}: no record, because the sources changed while it ran", file=sys.stderr)
            return 2
        ledger.add(record, parts)
        print_into(root / PAGE, "proof", table(parts, ledger))
        standing = ledger.standing(part, sources)
        worst = max(worst, int(standing is Standing.RED))
        print(f"  {_line(part, standing, ledger)}", flush=True)
    return worst


def _line(part: Part, standing: Standing, ledger: Ledger) -> str:
    said = f"{part.name:26} {standing.value:9} risk {part.risk}"
    record = ledger.get(part)
    if record is None:
        said += f", about {part.minutes} min"
    else:
        counts = "".join(f", {count:,} {word}" for word, count in record.counts.items())
        said += f", {record.date}, {record.seconds} s, commit {record.commit}{counts}"
    reason = ledger.why(part) if standing in (Standing.RED, Standing.CANNOT_RUN) else ""
    return said + (f": {reason}" if reason else "")


if __name__ == "__main__":
    # A signal ends the running part with the ledger. A shell's background jobs ignore SIGINT unless they set a handler.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
