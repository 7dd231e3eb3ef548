"""A plain implementation of the rule in docs/modes.md, with which the stores are compared."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Literal

Mode = Literal["exclusive", "shared", "permit"]


class Rule:
    """The tokens that one resource has seen."""

    def __init__(self) -> None:
        self.x = 0
        self.a = 0
        self.permits: defaultdict[int, int] = defaultdict(int)

    def passes(self, token: int, mode: Mode, permit: int | None) -> int | None:
        """Remembers a token that passes; returns the larger one that refuses it."""
        if mode == "exclusive":
            seen = max(self.a, *self.permits.values(), 0)
            if token >= seen:
                self.x = self.a = token
        elif mode == "shared":
            seen = max(self.x, *self.permits.values(), 0)
            if token >= seen:
                self.a = max(self.a, token)
        else:
            assert permit is not None
            seen = max(self.permits[permit], self.a)
            if token >= seen:
                self.permits[permit] = token
        return seen if token < seen else None


def drawn(seed: int, count: int) -> list[tuple[int, Mode, int | None]]:
    """Returns grants in an order in which paused holders come late: tokens that mostly grow, and modes."""
    random = Random(seed)
    grants: list[tuple[int, Mode, int | None]] = []
    for n in range(count):
        mode: Mode = random.choice(("exclusive", "shared", "shared", "permit", "permit"))
        token = 100 + n + random.choice([0, 0, -1, -2, -5, -20])
        grants.append((token, mode, random.randint(1, 3) if mode == "permit" else None))
    return grants
