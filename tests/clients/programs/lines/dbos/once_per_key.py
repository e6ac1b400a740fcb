from dbos import DBOS, SetWorkflowID
from openai import OpenAI


@DBOS.workflow()
def ask(question: str) -> str:
    return OpenAI().responses.create(model="gpt-5", input=question).output_text


DBOS(config={"name": "rivers"})
DBOS.launch()
with SetWorkflowID("w1/1"):
    print(ask("Name a river."))
