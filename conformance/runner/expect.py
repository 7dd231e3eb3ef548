"""Checks that an answer is what a scenario expects. README.md, "What can be expected", describes the forms."""

import math
from dataclasses import dataclass, field

from .resp import Reply
from .words import Saved

TOKEN_MAX = 2**53 - 1
# Tokens are about the time in microseconds, so a saved number below this is not a token.
TOKEN_LEAST = 2**40

# The difference that rounding to milliseconds may make, and the difference in rate between clocks.
ROUNDING_MS = 2
DRIFT = 0.01


class Mismatch(Exception):
    """An answer differs from what the scenario expects."""

    def __init__(self, expected: str, got: object):
        super().__init__(f"expected {expected}; got {got}")
        self.expected, self.got = expected, str(got)


@dataclass
class Moments:
    """The times at which a step was sent and answered: milliseconds on the boot clock."""

    sent: float
    answered: float = math.inf


@dataclass
class World:
    """What expectations refer to: saved values, and the times of steps."""

    saved: Saved
    moments: dict[str, Moments] = field(default_factory=dict)
    now: Moments | None = None
    resp: int = 2
    # True with an agent. Some of its nodes may grant later than the agent answers, so that their leases end later. The
    # agent reports for how long the holder may rely on its lock.
    is_quorum: bool = False

    def since(self, step: str, until: str | None = None) -> tuple[float, float]:
        """Returns the least and the largest time in milliseconds between the server's work on `step` and that on
        `until`. Without `until`, it is the work on the present step."""
        before = self.moments[step]
        after = self.moments[until] if until else self.now
        return max(0.0, after.sent - before.answered), after.answered - before.sent


def check(expected: object, got: Reply, world: World) -> None:
    """Raises Mismatch if `got` is not what is expected. Saves the values that the scenario saves."""
    match expected:
        case None:
            demand(got.kind == "null", "Null", got)
        case bool():
            demand(got.kind == "boolean" and got.value == expected, str(expected).lower(), got)
        case int():
            demand(got.kind == "integer" and got.value == expected, str(expected), got)
        case str() if expected.startswith("$"):
            value = world.saved.value(expected)
            is_token = isinstance(value, int) and value >= TOKEN_LEAST
            if is_token and world.is_quorum and got.kind == "integer" and value < got.value <= TOKEN_MAX:
                # A quorum may raise a token after the token was answered, when a late node joins. The token never
                # falls.
                world.saved.raise_to(expected, got.value)
            elif isinstance(value, int):
                check(value, got, world)
            else:
                demand(got.kind == "text" and got.value == value, f"{expected} ({value!r})", got)
        case str():
            demand(got.kind == "text" and got.value == expected.encode(), repr(expected), got)
        case list():
            demand(got.kind == "list" and len(got.value) == len(expected), f"a list of {len(expected)}", got)
            for one, other in zip(expected, got.value):
                check(one, other, world)
        case dict():
            if "save" in expected:
                demand(got.kind in ("integer", "text"), "something to save", got)
            [(form, what)] = [item for item in expected.items() if item[0] not in ("save", "says", "in_order", "until")]
            FORMS[form](what, expected, got, world)
            if "save" in expected:
                world.saved.save(expected["save"], got.value)


def demand(holds: bool, expected: str, got: object) -> None:
    if not holds:
        raise Mismatch(expected, got)


def error(code, expected, got, _world):
    demand(got.kind == "error" and got.value.split(" ")[0] == code, f"an error {code}", got)
    for part in expected.get("says", []):
        demand(part in got.value, f"an error {code} that says {part!r}", got)


def integer(bounds, _expected, got, world):
    limits = {name: world.saved.value(limit) if isinstance(limit, str) else limit for name, limit in bounds.items()}
    shown = " and ".join(f"{name.replace('_', ' ')} {limit}" for name, limit in limits.items()) or "of any size"
    demand(got.kind == "integer", f"an integer {shown}", got)
    holds = {"above": got.value.__gt__, "below": got.value.__lt__, "least": got.value.__ge__, "most": got.value.__le__}
    demand(all(holds[name](limit) for name, limit in limits.items()), f"an integer {shown}", got)


def token(bounds, expected, got, world):
    integer({"least": 1, "most": TOKEN_MAX} | ({} if bounds == "any" else bounds), expected, got, world)


def lease(what, _expected, got, world):
    """Checks the time that is left of a lease of `ms`, which the step `since` began."""
    least, most = world.since(what["since"])
    from_ms = (what["ms"] - most) * (1 - DRIFT) - ROUNDING_MS - (what["ms"] * DRIFT if world.is_quorum else 0)
    to_ms = what["ms"] if world.is_quorum else what["ms"] - least * (1 - DRIFT) + ROUNDING_MS
    shown = f"{max(0, math.floor(from_ms))} to {math.ceil(to_ms)} ms left of a lease of {what['ms']}"
    demand(got.kind == "integer" and from_ms <= got.value <= to_ms, shown, got)


def age(since, expected, got, world):
    """Checks the time that has passed since the step `since`: until now, or until the step `until`."""
    least, most = world.since(since, expected.get("until"))
    least = 0 if world.is_quorum else least * (1 - DRIFT) - ROUNDING_MS
    shown = f"{max(0, math.floor(least))} to {math.ceil(most) + ROUNDING_MS} ms"
    demand(got.kind == "integer" and least <= got.value <= most * (1 + DRIFT) + ROUNDING_MS, shown, got)


def waited(_what, _expected, got, world):
    """Checks the time that the request has waited. It is not longer than the answer took."""
    most = (world.now.answered - world.now.sent) * (1 + DRIFT) + ROUNDING_MS
    demand(got.kind == "integer" and 0 <= got.value <= most, f"0 to {math.ceil(most)} ms waited", got)


def map_(fields, expected, got, world):
    pairs = got.value
    if got.kind == "list" and len(got.value) % 2 == 0 and world.resp == 2:
        pairs = list(zip(got.value[::2], got.value[1::2]))
    else:
        demand(got.kind == "map", "a map", got)
    by_name = {name.value.decode(): value for name, value in pairs if name.kind == "text"}
    for name, value in fields.items():
        demand(name in by_name, f"a field {name}", got)
        try:
            check(value, by_name[name], world)
        except Mismatch as why:
            raise Mismatch(f"{name}: {why.expected}", why.got) from why
    if expected.get("in_order"):
        order = [name for name in by_name if name in fields]
        demand(order == list(fields), f"the fields {', '.join(fields)}, in this order", ", ".join(by_name))


def one_of(choices, _expected, got, world):
    for choice in choices:
        try:
            return check(choice, got, world)
        except Mismatch:
            pass
    raise Mismatch(f"one of {choices}", got)


def not_(what, _expected, got, world):
    try:
        check(what, got, world)
    except Mismatch:
        return
    raise Mismatch(f"anything but {what}", got)


def list_with(what, _expected, got, world):
    """Checks that a list has these elements, perhaps among others."""
    demand(got.kind == "list", "a list", got)
    for one in what:
        for other in got.value:
            try:
                check(one, other, world)
                break
            except Mismatch:
                pass
        else:
            raise Mismatch(f"a list with {one}", got)


def text(what, _expected, got, _world):
    demand(got.kind == "text" and all(part in got.value.decode("utf-8", "replace") for part in what),
           f"a text with {what}", got)


FORMS = {"error": error, "int": integer, "token": token, "lease": lease, "age": age, "waited": waited, "map": map_,
         "one_of": one_of, "not": not_, "list_with": list_with, "text": text}
