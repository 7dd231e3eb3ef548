"""What locks of both faces tell without asking anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._hold import Hold
from ._leading import Leading

if TYPE_CHECKING:
    from typing_extensions import Self


class Facts:
    """A lock that is held, as long as it ``is_valid``.

    Look at that before each step that must not happen without the lock, and give the ``token`` to the resource, which refuses a
    smaller one than it has seen: no check on this side can catch a process that is paused right after it.
    """

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    @property
    def key(self) -> bytes:
        """The key that is locked."""
        return self._hold.held.acquisition.key

    @property
    def owner(self) -> str:
        """The name under which the server knows this acquisition, new and random. Who knows it can release the lock."""
        return self._hold.held.acquisition.owner

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier holder, and below 2^53.

        Behind a ``palisade agent`` it can rise while the lock is held, and never falls: ask for it at each use.
        """
        return self._hold.held.token

    @property
    def valid_for(self) -> float:
        """For how many seconds the lock may be relied on from now; 0: not any more.

        Counted on a clock of this machine that nobody sets, from before the server was asked, less 1 % and a few milliseconds.
        """
        return self._hold.valid_for

    @property
    def is_valid(self) -> bool:
        """Whether the lock may be relied on, now. Decided by the clock at each look, not by timers."""
        return self._hold.valid_for > 0

    def _again(self, hold: Hold) -> Self:
        """Another lock of the same acquisition."""
        return type(self)(hold)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} token={self.token} valid_for={self.valid_for:.3f}>"


class PermitFacts(Facts):
    """One of so many permits."""

    @property
    def number(self) -> int:
        """Its number, from 1 to the limit. Nobody else has it meanwhile."""
        return self._hold.held.number


class LeadershipFacts(Facts):
    """Leads until it resigns or is ``lost``; with all that a ``Lock`` tells."""

    def __init__(self, leading: Leading, hold: Hold | None = None) -> None:
        super().__init__(leading.hold if hold is None else hold)
        self._leading = leading

    @property
    def term(self) -> int:
        """Larger than that of every earlier leader, and the same as long as this one leads.

        It is a fencing token, as ``token`` is, which can rise meanwhile: give a resource always the one or always the other.
        """
        return self._leading.term

    @property
    def sequence(self) -> int:
        """The number of what was proclaimed last: 1 at first."""
        return self._leading.sequence

    def _again(self, hold: Hold) -> Self:
        return type(self)(self._leading, hold)
