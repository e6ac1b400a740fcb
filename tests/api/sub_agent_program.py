"""A program whose agent calls another one: started again with the same key, it goes on with the same run.

python sub_agent_program.py HOME
"""

from __future__ import annotations

import sys
from pathlib import Path

from tailrace import Agent
from tailrace.config.load import load


def main(home: Path) -> None:
    config = load({}, home)
    helper = Agent(config=config, directory=home, system="You research.")
    agent = Agent(config=config, directory=home, tools=[helper.as_tool("research")])
    result = agent.run_sync("Go.", key="once")
    sys.stdout.write(f"{result.run_id} {result.text}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
