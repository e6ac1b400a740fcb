import asyncio

from dbos import DBOS, SetWorkflowID
from openai import AsyncOpenAI


@DBOS.step()
async def ask(question: str) -> str:
    return (await AsyncOpenAI().responses.create(model="gpt-5", input=question)).output_text


@DBOS.workflow()
async def report(topic: str) -> str:
    outline = await ask(f"Outline a text about {topic}.")
    parts = await asyncio.gather(*(ask(f"Write the {part} part: {outline}") for part in ("first", "second")))
    return await ask(f"Sum up in one sentence: {parts}")


DBOS(config={"name": "report"})
DBOS.launch()
with SetWorkflowID("report-1"):
    print(DBOS.start_workflow(report, "tide mills").get_result())
