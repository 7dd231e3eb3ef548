"""The server's address, and connections to it."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any, cast

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis._parsers import _AsyncRESP2Parser
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .errors import BadArgument

Client = redis.Redis | redis.asyncio.Redis
"""A client of redis-py, of which the address, the user and other connection options are used."""

# With these options, where the system has them, a machine that has vanished is noticed after three quarters of a
# minute.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}

# Other options belong to that client alone: its cache, its retries, its encoding, its time limits.
_TAKEN = re.compile(r"host|port|path|db|username|password|credential_provider|client_name|ssl_.*|socket_keepalive.*|socket_type")


_THROUGH_AN_AGENT = "through a `palisade agent` that runs beside the program (docs/agent.md)"
_NOT_ONE_SERVER = f"the address must be of one server: reach a cluster, or a master behind Sentinel, {_THROUGH_AN_AGENT}"


class _Parser(_AsyncRESP2Parser):  # type: ignore[misc, unused-ignore]
    """Keeps errors as the server sends them.

    redis-py removes the first word of some errors, and makes others look like a broken connection.
    """

    EXCEPTION_CLASSES = {}  # noqa: RUF012


class Address:
    """An address with its connection options."""

    def __init__(self, address: str | Client) -> None:
        if _are_several(address):
            raise BadArgument(f"several addresses were given, and this takes one: reach a quorum of nodes {_THROUGH_AN_AGENT}")
        if isinstance(address, str):
            self._kind, given = _from_url(address)
        else:
            self._kind, given = _from_client(address)
        if self._kind is not UnixDomainSocketConnection:
            alive = {getattr(socket, name): value for name, value in _KEEPALIVE.items() if hasattr(socket, name)}
            given = {"socket_keepalive": True, "socket_keepalive_options": alive, **given}
        self._options = given

    def __str__(self) -> str:
        """Returns the address without passwords."""
        if self._kind is UnixDomainSocketConnection:
            return f"unix://{self._options.get('path', '')}"
        scheme = "rediss" if self._kind is SSLConnection else "redis"
        return f"{scheme}://{self._options.get('host', 'localhost')}:{self._options.get('port', 6379)}"

    def connection(self, within: float) -> AbstractConnection:
        """Returns a connection that is not open yet. It repeats nothing by itself, and waits for answers without a
        limit."""
        return self._kind(
            **self._options,
            protocol=2,
            parser_class=_Parser,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=within,
        )


def _are_several(address: object) -> bool:
    if isinstance(address, (list, tuple, set, frozenset)):
        return True
    if not isinstance(address, str):
        return False
    # A comma may be in a password, or in a path. A list of hosts may lack the scheme.
    hosts = re.match("(?:rediss?://(?:.*@)?|(?:[^/]*@)?)([^/?]*)", address, re.DOTALL)
    return (hosts is not None and "," in hosts[1]) or re.search(r"[,;\s]\s*(rediss?|unix)://", address) is not None


def _from_url(url: str) -> tuple[type[AbstractConnection], Mapping[str, Any]]:
    if not re.match("(rediss?|unix)://", url):
        if re.match(r"rediss?\+(cluster|sentinel)://", url):
            raise BadArgument(_NOT_ONE_SERVER)
        raise BadArgument("the address must begin with redis://, rediss:// or unix://")
    try:
        options = dict(parse_url(url))
        kind = cast("type[AbstractConnection]", options.pop("connection_class", Connection))
        # The options after the URL's question mark are for clients; unknown ones raise an error here.
        chosen = _chosen(options)
        kind(**chosen)
    except Exception:
        # The address is not shown, since it may contain the password.
        raise BadArgument("the address cannot be read: redis://user:password@host:port, or unix:///path") from None
    return kind, chosen


def _from_client(client: Client) -> tuple[type[AbstractConnection], Mapping[str, Any]]:
    pool = getattr(client, "connection_pool", None)
    kinds_of_sentinel = (redis.sentinel.SentinelConnectionPool, redis.asyncio.sentinel.SentinelConnectionPool)
    if hasattr(client, "nodes_manager") or isinstance(pool, kinds_of_sentinel):
        raise BadArgument(_NOT_ONE_SERVER)
    if pool is None:
        raise BadArgument("the address must be a URL, or a client of redis-py (Redis)")
    chosen = _chosen(pool.connection_kwargs)
    if "path" in chosen:
        return UnixDomainSocketConnection, chosen
    kinds = (redis.SSLConnection, SSLConnection)
    return (SSLConnection if issubclass(pool.connection_class, kinds) else Connection), chosen


def _chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if _TAKEN.fullmatch(name) and value is not None}
