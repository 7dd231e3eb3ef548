"""Runs scenarios. Most run at the same time. Those that disturb others run alone, or on their own server."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .clients import ClientPlay, Unsupported
from .commands import Failed, Play
from .drivers import Driver
from .files import full_name
from .report import Report
from .servers import Agent, Node
from .target import Target

SIDE_BY_SIDE = 16
CLIENTS_SIDE_BY_SIDE = 4


def run_commands(target: Target, scenarios: list[dict], report: Report) -> None:
    run = secrets.token_hex(4)
    plays = []
    for number, scenario in enumerate(scenarios):
        lacking = target.lacks(scenario)
        if lacking:
            report.skip(target.name, full_name(scenario), f"needs {', '.join(lacking)}")
        else:
            plays.append((scenario, Play(target, scenario, f"conformance:{run}:{number}:")))
    # The longest scenarios begin first.
    plays.sort(key=lambda play: -sum(step.get("pause_ms", 0) for step in play[0]["steps"]))
    alone = [play for play in plays if target.goes_alone(play[0])]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        together = [play for play in plays if play not in alone]
        for (scenario, _), outcome in zip(together, pool.map(outcome_of, (play for _, play in together))):
            tell(target, scenario, outcome, report)
    for scenario, play in alone:
        tell(target, scenario, outcome_of(play), report)


def outcome_of(play: Play) -> Failed | None:
    try:
        play.run()
    except Failed as why:
        return why
    return None


def tell(target: Target, scenario: dict, outcome: Failed | None, report: Report) -> None:
    known = scenario.get("known", {}).get("agent" if target.is_quorum else "node")
    report.outcome(target.name, scenario, full_name(scenario), outcome, known)


def run_clients(name: str, command: str, start: Callable[[], Node], scenarios: list[dict], report: Report,
                start_agent: Callable[[], Agent] | None = None) -> None:
    """Runs scenarios with one driver. Most share one server. A scenario that changes its server, or needs an agent,
    gets its own."""
    run, shared = secrets.token_hex(4), start()
    drivers: list[Driver] = []

    def play(numbered: tuple[int, dict]) -> tuple[dict, Failed | Unsupported | None]:
        number, scenario = numbered
        needs = scenario.get("needs", [])
        is_alone = "agent" in needs or "restart" in needs or any("server" in step for step in scenario["steps"])
        node = start_agent() if "agent" in needs else start() if is_alone else shared
        driver = drivers.pop() if drivers else Driver(command)
        try:
            ClientPlay(driver, scenario, f"conformance:{run}:{number}:", node).run()
            drivers.append(driver)
        except Unsupported as why:
            drivers.append(driver)
            return scenario, why
        except Failed as why:
            # An operation that the driver is still performing would disturb other scenarios.
            driver.end()
            return scenario, why
        finally:
            if is_alone:
                node.end()
        return scenario, None

    try:
        due = []
        for numbered in enumerate(scenarios):
            if name in numbered[1].get("known", {}):
                report.skip(name, full_name(numbered[1]), f"known: {numbered[1]['known'][name]}")
            elif "agent" in numbered[1].get("needs", []) and start_agent is None:
                report.skip(name, full_name(numbered[1]), "needs agent")
            else:
                due.append(numbered)
        due.sort(key=lambda numbered: -sum(step.get("pause_ms", 0) for step in numbered[1]["steps"]))
        with ThreadPoolExecutor(CLIENTS_SIDE_BY_SIDE) as pool:
            for scenario, outcome in pool.map(play, due):
                if isinstance(outcome, Unsupported):
                    report.skip(name, full_name(scenario), "the driver does not have it")
                else:
                    report.outcome(name, scenario, full_name(scenario), outcome, None)
    finally:
        for driver in drivers:
            driver.end()
        shared.end()
