"""Which tests are slow: those that `make test` leaves out and `make test-all` runs.

A test is slow if it starts other programs (servers, browsers, foreign clients, several processes of ours), if it waits
for leases and time-outs of real processes, if it asserts a bound of time or memory, or if it searches a large space.
`make test` needs nothing but Python and covers every room without them.
"""

from __future__ import annotations

import pytest

# Folders and files under tests/.
SLOW = (
    "agent/safety/test_against_bash.py",
    "agent/test_crash.py",
    "agent/test_own_death.py",
    "app/test_tracing.py",
    "attacks",
    "cli/chat/test_chat.py",
    "cli/chat/test_less_of_a_terminal.py",
    "cli/chat/test_oneshot.py",
    "cli/chat/test_screen_answers.py",
    "cli/chat/test_screen_approvals.py",
    "cli/chat/test_screen_sessions.py",
    "cli/chat/test_screen_steering.py",
    "cli/chat/test_screen_trouble.py",
    "cli/commands/test_add.py",
    "cli/commands/test_config_places.py",
    "cli/commands/test_decode.py",
    "cli/commands/test_demo.py",
    "cli/commands/test_dist.py",
    "cli/commands/test_flow.py",
    "cli/commands/test_gateway.py",
    "cli/commands/test_keys.py",
    "cli/commands/test_reload.py",
    "cli/commands/test_serve.py",
    "cli/commands/test_serve_kept_answers.py",
    "cli/commands/test_serve_questions.py",
    "cli/commands/test_serve_workers.py",
    "clients",
    "cluster",
    "components/homeassistant/test_assist.py",
    "engines",
    "events/test_readers_of_events.py",
    "flows/engine/test_kill.py",
    "integrations/acp/test_acp_recovery.py",
    "integrations/acp/test_acp_stdio.py",
    "integrations/acp/test_mcp_servers.py",
    "integrations/discord/test_gateway.py",
    "integrations/matrix",
    "integrations/mcp_server/test_run_tools.py",
    "integrations/postgres",
    "integrations/redis",
    "integrations/slack/test_gateway.py",
    "integrations/telegram/test_gateway.py",
    "journal/sqlite/test_wal.py",
    "journal/test_kill.py",
    "journal/test_machine.py",
    "journal/test_processes.py",
    "journal/test_storage_format.py",
    "journal/test_viewers.py",
    "model_checking",
    "plugins/test_other_packages.py",
    "power_loss",
    "providers/local",
    "providers/test_call_chaos.py",
    "providers/test_cut_everywhere.py",
    "runs/test_lost_attempt.py",
    "runs/test_reattach.py",
    "runs/test_takeover.py",
    "server/http/test_file_limit.py",
    "server/routes/test_fork_request.py",
    "server/test_http_document.py",
    "server/test_stream_cache.py",
    "server/v1/test_no_cycles.py",
    "server/web",
    "simulation",
    "soak",
    "speed",
    "streams/test_tailrace.py",
    "system/test_worker_processes.py",
    "test_bench.py",
    "test_deploy.py",
    "test_imports.py",
    "test_makefile.py",
    "test_tutorials.py",
    "test_wheel.py",
    "testing/test_docs_examples.py",
    "tools/checkpoint/test_rollback.py",
    "tools/mcp/test_mcp_offers.py",
    "wire/test_fuzz.py",
)


def is_slow(file: str) -> bool:
    """Whether a file or folder is slow, by its path under tests/."""
    return any(file == name or file.startswith(f"{name}/") for name in SLOW)


def mark_slow(item: pytest.Item) -> None:
    starts_server = "postgres_server" in getattr(item, "fixturenames", ())
    if starts_server or is_slow(item.nodeid.partition("::")[0].removeprefix("tests/")):
        item.add_marker(pytest.mark.slow)
