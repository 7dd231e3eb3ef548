"""Fixtures: a lock server, and stores with fences."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from postgresql import Cluster, Database
from servers import Node

_keys = itertools.count(1)


@pytest.fixture(scope="session")
def a_node() -> Iterator[Node]:
    with Node() as node:
        yield node


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return f"prices:{next(_keys)}"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.end()


@pytest.fixture(scope="session")
def the_database(cluster: Cluster) -> Database:
    return cluster.new_database()


@pytest.fixture
def database(the_database: Database) -> Iterator[Database]:
    """A database that is new for each test."""
    the_database.furnish()
    yield the_database
    the_database.end()
