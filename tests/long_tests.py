"""The order of the tests in a run with several workers: those that take long come first, or in the middle.

A long test that is begun last is all that a run waits for. Long tests mostly wait, and short ones compute: one half of
the workers has its long ones first and the other half in the middle, so that both kinds share the cores. Within a file
of `LONG` tests are dealt to the workers one by one, or all to one worker where they share what a fixture of their
module has started. Tests that share something dear for the whole session, as those of Matrix do with a homeserver,
stand elsewhere: each worker would start its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import pytest

# the longest first; alternately those that wait and those that compute
LONG = (
    "soak/test_soak.py",
    "simulation/test_simulation.py",
    "cluster/test_kills.py",
    "components/homeassistant/test_assist.py",
    "attacks/test_attacks.py",
    "cluster/test_outages.py",
    "clients/test_python_clients.py",
    "clients/test_node_clients.py",
    "clients/test_documented_blocks.py",
    "cluster/test_gateways.py",
    "clients/test_claude_code.py",
    "model_checking/test_delivery.py",
    "journal/test_kill.py",
    "simulation/test_mistakes.py",
    "simulation/test_postgres.py",
    "integrations/telegram/test_gateway.py",
    "flows/engine/test_kill.py",
    "engines/test_dbos.py",
    "providers/local/test_provider.py",
    "integrations/postgres/test_lost_connections.py",
    "test_wheel.py",
    "attacks/test_stalled_viewers.py",
    "model_checking/test_lease.py",
    "integrations/slack/test_gateway.py",
    "integrations/acp/test_acp_recovery.py",
    "integrations/mcp_server/test_run_tools.py",
    "providers/test_cancel.py",
    "providers/test_cut_everywhere.py",
    "providers/local/test_chat.py",
    "providers/local/test_server.py",
    "server/web/test_accessibility.py",
    "server/web/test_windows.py",
    "journal/test_viewers.py",
    "journal/test_machine.py",
    "simulation/test_command.py",
    "cli/commands/test_serve_questions.py",
    "cli/commands/test_demo.py",
    "speed/test_counts.py",
)
SHARED = (
    "clients/test_documented_blocks.py",
    "clients/test_node_clients.py",
    "cluster/test_outages.py",
    "speed/test_counts.py",
)


def dealt(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """In the order in which `--dist worksteal` hands them out: as many to each worker, the first one's first."""
    files = {name: number for number, name in enumerate(LONG)}
    long: dict[str, list[pytest.Item]] = {}
    rest: list[pytest.Item] = []
    for item in items:
        file = item.nodeid.partition("::")[0].removeprefix("tests/")
        if file in files:
            long.setdefault(file if file in SHARED else item.nodeid, []).append(item)
        else:
            rest.append(item)
    hands: list[list[pytest.Item]] = [[] for _ in range(workers)]
    in_order = sorted(long.values(), key=lambda unit: files[unit[0].nodeid.partition("::")[0].removeprefix("tests/")])
    for hand, unit in zip(cycle(hands), in_order):
        hand.extend(unit)
    order: list[pytest.Item] = []
    for number, hand in enumerate(hands):
        room = (len(items) - len(order)) // (workers - number) - len(hand)
        short, rest = rest[: max(0, room)], rest[max(0, room) :]
        before = len(short) // 2 if number % 2 else 0
        order += short[:before] + hand + short[before:]
    return order
