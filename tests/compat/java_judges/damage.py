"""Random damage, for the generators of cases."""

from __future__ import annotations

import random


def damaged(rng: random.Random, text: str, telling: str) -> str:
    """Return *text* after one to three changes: a character of *telling* inserted or put in place of another one, or a
    piece removed, or repeated elsewhere."""
    for _ in range(rng.randint(1, 3)):
        at, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        match rng.randrange(4):
            case 0:
                text = text[:at] + rng.choice(telling) + text[at:]
            case 1:
                text = text[:at] + rng.choice(telling) + text[at + 1 :]
            case 2:
                text = text[:at] + text[min(end, at + rng.randint(1, 8)) :]
            case _:
                text = text[:end] + text[at : at + rng.randint(1, 20)] + text[end:]
    return text
