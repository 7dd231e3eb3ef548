"""Reads the scenarios from their files, checks them against the schema, and makes one scenario of each row of a table.
"""

import json
import sys
from pathlib import Path

try:
    import jsonschema
    from referencing import Registry, Resource
except ImportError:
    sys.exit("jsonschema is missing: pip install -r conformance/requirements.txt (or `make setup-conformance`)")

FOLDER = Path(__file__).parent.parent


def scenarios(kind: str, only: str | None = None) -> list[dict]:
    """Returns all scenarios in the folder `kind`, ordered by file and line. With `only`, these are those whose names
    contain it."""
    schemas = {path.name: json.loads(path.read_text()) for path in (FOLDER / "schema").glob("*.json")}
    registry = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in schemas.items())
    schema = jsonschema.Draft202012Validator(schemas[f"{kind}.json"] | {"$id": f"{kind}.json"}, registry=registry)
    found = []
    for path in sorted((FOLDER / kind).glob("*.json")):
        content = json.loads(path.read_text())
        wrong = next(iter(schema.iter_errors(content)), None)
        if wrong:
            place = "/".join(map(str, wrong.absolute_path))
            sys.exit(f"{path.relative_to(FOLDER)}: {place}: {wrong.message}")
        for scenario in content["scenarios"]:
            found += [row | {"file": path.stem} for row in written_out(scenario)]
    names = [full_name(scenario) for scenario in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        sys.exit(f"two scenarios have one name: {', '.join(sorted(twice))}")
    return [scenario for scenario, name in zip(found, names) if only is None or only in name]


def full_name(scenario: dict) -> str:
    return f"{scenario['file']}: {scenario['name']}"


def written_out(scenario: dict) -> list[dict]:
    """Returns the scenario, or one scenario for each row of its table."""
    if "table" not in scenario:
        return [scenario]
    rows = []
    for row in scenario["table"]:
        filled = {name: value for name, value in scenario.items() if name != "table"}
        filled["name"] = f"{scenario['name']}: {row['row']}"
        filled["needs"] = scenario.get("needs", []) + row.get("needs", [])
        filled["steps"] = fill(scenario["steps"], row)
        rows.append(filled)
    return rows


def fill(part: object, row: dict) -> object:
    """Returns `part` with each `{name}` replaced by the row's value of that name. If the value is a list, its words
    take the place of the one word."""
    match part:
        case str() if part.startswith("{") and part.endswith("}"):
            return row[part[1:-1]]
        case list():
            filled = []
            for one in part:
                value = fill(one, row)
                filled += value if isinstance(one, str) and isinstance(value, list) else [value]
            return filled
        case dict():
            return {name: fill(value, row) for name, value in part.items()}
    return part
