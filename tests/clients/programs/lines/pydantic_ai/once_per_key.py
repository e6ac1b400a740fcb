from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSAgent

DBOS(config={"name": "rivers"})
agent = DBOSAgent(Agent("openai:gpt-5", name="guide"))
DBOS.launch()
with SetWorkflowID("w1/1"):
    print(agent.run_sync("Name a river.").output)
