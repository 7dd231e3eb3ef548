"""Translates the words of a scenario's commands into bytes: texts, saved values, and bytes that are no text."""

import re

SAVED = re.compile(r"\$([a-z_]+[0-9]*)([+-][0-9]+)?")


class Saved:
    """Values by name: keys that no other scenario uses, and values from earlier answers."""

    def __init__(self, prefix: str):
        self.prefix, self.values = prefix, {}

    def save(self, name: str, value: object) -> None:
        self.values[name] = value

    def raise_to(self, word: str, value: int) -> None:
        """Makes `$name` stand for a larger value from now on."""
        self.values[SAVED.fullmatch(word)[1]] = value

    def value(self, word: str) -> object:
        """Returns the value for which `$name`, `$name+1` or `$name-1` stands."""
        found = SAVED.fullmatch(word)
        if not found:
            raise ValueError(f"{word} names nothing that can be saved")
        name, more = found[1], int(found[2] or 0)
        if name not in self.values:
            if not re.fullmatch(r"k[0-9]*", name):
                raise ValueError(f"no step has saved ${name}")
            self.values[name] = f"{self.prefix}{name}".encode()
        return self.values[name] + more if more else self.values[name]

    def text(self, word: str) -> str:
        """Returns a text with its saved values filled in."""
        return SAVED.sub(lambda found: shown(self.value(found[0])), word)

    def bytes(self, word: object) -> bytes:
        match word:
            case {"hex": digits}:
                return bytes.fromhex(digits)
            case {"repeat": one, "times": times}:
                return one.encode() * times
            case str() if SAVED.fullmatch(word):
                value = self.value(word)
                return value if isinstance(value, bytes) else str(value).encode()
            case str():
                return self.text(word).encode() if "$" in word else word.encode()
        raise ValueError(f"{word!r} is no word")


def shown(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
