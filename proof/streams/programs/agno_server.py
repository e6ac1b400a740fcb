"""An AgentOS as agno's docs set one up for runs that outlive their client: PostgreSQL, Redis, a durable queue."""

import os
import urllib.request

from agno.agent import Agent
from agno.db.postgres import PostgresDb
from agno.models.openai import OpenAIChat
from agno.os import AgentOS, QueueConfig


def record(url: str) -> str:
    """Asks for an address."""
    with urllib.request.urlopen(url, timeout=5) as response:
        return response.read().decode()


database = PostgresDb(db_url=os.environ["DATABASE"].replace("postgresql://", "postgresql+psycopg://"))
agent = Agent(
    id="numbers",
    model=OpenAIChat(
        id="numbers",
        base_url=os.environ["PROVIDER"],
        api_key="none",
        timeout=3,
        retries=3,
        delay_between_retries=1,
        exponential_backoff=True,
    ),
    db=database,
    tools=[record],
    store_events=True,
)
agent_os = AgentOS(
    agents=[agent], db=database, queue=QueueConfig(durable=True, redis=os.environ["REDIS"], lock_grace_seconds=5)
)
app = agent_os.get_app()

if __name__ == "__main__":
    agent_os.serve(app=app, host="127.0.0.1", port=int(os.environ["PORT"]))
