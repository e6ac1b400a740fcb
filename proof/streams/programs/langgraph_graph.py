"""An agent as a graph: the model's node has a retry policy, the tools' node runs what it asks for."""

import os
import urllib.request

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy


@tool
def record(url: str) -> str:
    """Asks for an address."""
    with urllib.request.urlopen(url, timeout=5) as response:
        return response.read().decode()


model = ChatOpenAI(
    model="numbers", base_url=os.environ["PROVIDER"], api_key="none", timeout=3, max_retries=3, streaming=True
).bind_tools([record])


async def call_model(state: MessagesState) -> dict:
    return {"messages": [await model.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node(
    "model", call_model, retry_policy=RetryPolicy(max_attempts=5, initial_interval=1.0, retry_on=Exception)
)
builder.add_node("tools", ToolNode([record]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = builder.compile()
