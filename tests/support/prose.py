"""The editor's rules of CONTRIBUTING that a program can keep: sentences, headings, words, and what is said twice."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

#: Words of another language's idiom, and what to write instead.
INSTEAD: Final = {
    r"stands? still": "a stalled stream, is stalled",
    r"go(?:es)? on (?:with|where|from|behind|as)": "resumes, continues",
    r"in the midst of": "during",
    r"by itself in some": "automatically in some",
    r"(?:is|are) told apart": "is detected, is distinguished",
    r"whoever": "a client that, a user who",
    r"what others": "the noun: text from others, other programs",
    r"makes? void": "discards, rolls back",
    r"is void": "is discarded",
    r"looks? it up again": "reads it again",
    r"(?:is|are) asked (?:for|again|about)": "the driver requests, reads",
    r"in one sentence": "with an error",
    r"brings? along": "contains, ships",
    r"meanwhile": "during that time, at the same time",
    r"(?:some|no|any)body": "the actor: an operator, a client, no program",
    r"anew": "again, without the earlier state",
    r"of (?:yours|one's own)": "your own, custom",
    r"there twice": "duplicated",
    r"what becomes of": "the outcome of, the handling of",
}
_QUESTION: Final = re.compile(r"^(?:What|Who|Whoever|Which|How|When|Where|Why)\b")
_CLAUSE: Final = re.compile(r"^(?:What|Whoever|Who)\b")


def prose(page: str) -> str:
    """Return *page* without code, tables, comments and HTML; names in code are one word each."""
    text = re.sub(r"^---\n.*?\n---\n", "", page, flags=re.DOTALL)
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->|<[^>\n]+>", "", text, flags=re.DOTALL)
    lines = ["" if line.lstrip().startswith("|") else line for line in text.splitlines()]
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", "\n".join(lines))
    return re.sub(r"`[^`]*`", "code", text)


def headings(page: str) -> list[str]:
    text = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


def sentences(page: str) -> list[str]:
    """Return the sentences of the paragraphs and lists of *page*."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )", prose(page)):
        text = " ".join(re.sub(r"^\s*(?:[*-]|\d+\.) ", "", paragraph).split())
        if text.startswith("#"):
            continue
        found += [
            each for each in re.split(r"(?<=[.!?])[*_\"')]* (?=[A-Z*_\"'(`]|code)", text) if len(each.split()) > 2
        ]
    return found


def words_of_a_sentence(page: str) -> float:
    """Return the average number of words of a sentence."""
    found = sentences(page)
    return sum(len(each.split()) for each in found) / max(len(found), 1)


def faults(page: str) -> Iterator[str]:
    """Yield a description of each fault of *page*."""
    for heading in headings(page):
        if _QUESTION.match(heading):
            yield f"heading {heading!r}: a noun or an imperative"
    for sentence in sentences(page):
        if _CLAUSE.match(sentence) and len(sentence.split()) > 3 and not sentence.endswith("?"):
            yield f"a clause as the subject: {sentence[:80]!r}"
        for pattern, instead in INSTEAD.items():
            if found := re.search(rf"\b{pattern}\b", sentence, re.IGNORECASE):
                yield f"{found[0]!r} ({instead}): {sentence[:80]!r}"


def repeated(pages: Mapping[str, str], length: int = 9) -> list[tuple[str, str, str]]:
    """Return the runs of at least *length* words that two of *pages* share: both pages, and the whole run."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    words = {name: re.findall(r"[\w'.-]+", prose(text).lower()) for name, text in pages.items()}
    for name, found in words.items():
        for at in range(len(found) - length + 1):
            places[tuple(found[at : at + length])].append((name, at))
    runs: list[tuple[str, str, str]] = []
    last: dict[tuple[str, str], tuple[int, int]] = {}
    for run, there in sorted(places.items(), key=lambda item: item[1]):
        for (one, at), (other, other_at) in _pairs(there):
            # The words that follow a counted run belong to it.
            if last.get((one, other)) != (at - 1, other_at - 1):
                runs.append((one, other, " ".join(run)))
            last[one, other] = (at, other_at)
    return runs


def _pairs(there: list[tuple[str, int]]) -> Iterable[tuple[tuple[str, int], tuple[str, int]]]:
    for number, one in enumerate(there):
        yield from ((one, other) for other in there[number + 1 :] if other[0] != one[0])


def paragraphs(page: Path) -> list[str]:
    return [part for part in page.read_text(encoding="utf-8").split("\n\n") if part.strip()]
