"""The fence of a service's memory follows the rule too."""

from __future__ import annotations

import pytest

from palisade_client import Fenced
from palisade_client.fencing import Grant, MemoryFence
from rule import Rule, drawn


@pytest.mark.parametrize("seed", range(5))
async def test_each_grant_passes_or_is_refused_as_the_rule_says(seed: int) -> None:
    fence, rule = MemoryFence(), Rule()
    for token, mode, permit in drawn(seed, 100):
        seen = rule.passes(token, mode, permit)
        try:
            async with fence.passing("prices", Grant(token, mode, permit)):
                refused = None
        except Fenced as error:
            refused = error.seen
        assert refused == seen, (seed, token, mode, permit)
