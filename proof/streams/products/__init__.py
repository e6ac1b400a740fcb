"""One adapter for each product. To add one: docs/proof-add.md."""

from __future__ import annotations

from proof.streams.product import Product
from proof.streams.products.agno import Agno
from proof.streams.products.ai_sdk import AiSdk
from proof.streams.products.dbos import Dbos
from proof.streams.products.hermes_agent import HermesAgent
from proof.streams.products.langgraph import LangGraph
from proof.streams.products.litellm import LiteLlm
from proof.streams.products.mastra import Mastra
from proof.streams.products.pydantic_ai import PydanticAi
from proof.streams.products.tailrace import Tailrace, TailracePostgres, TailraceWorkers
from proof.streams.products.tailrace_streams import TailraceStreams

PRODUCTS: dict[str, type[Product]] = {
    product.name: product
    for product in (
        Tailrace,
        TailraceWorkers,
        TailracePostgres,
        TailraceStreams,
        LiteLlm,
        AiSdk,
        LangGraph,
        Agno,
        Dbos,
        PydanticAi,
        Mastra,
        HermesAgent,
    )
}
