"""Words of commands as scenarios write them: texts, saved values, bytes that are no text."""

import re

SAVED = re.compile(r"\$([a-z_]+[0-9]*)([+-][0-9]+)?")


class Saved:
    """Values by their names: keys that nobody else uses, and what earlier answers had."""

    def __init__(self, prefix: str):
        self.prefix, self.values = prefix, {}

    def save(self, name: str, value: object) -> None:
        self.values[name] = value

    def raise_to(self, word: str, value: int) -> None:
        """`$name` stands for this from now on."""
        self.values[SAVED.fullmatch(word)[1]] = value

    def value(self, word: str) -> object:
        """What `$name`, `$name+1` or `$name-1` stands for."""
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
        """A text in which saved values stand between others."""
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
