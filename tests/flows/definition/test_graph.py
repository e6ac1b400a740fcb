"""The graph of a sequence: its nodes are those that the log speaks of, and its drawing is text and never code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.stages import sequence, service, step
from tailrace.events import StepStarted, StepState
from tailrace.flows.definition.graph import Edge, Lane, graph_of, node_id, node_states, tree
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import JsonObject


def every_block() -> list[JsonObject]:
    def named(*names: str) -> list[JsonObject]:
        return [step(name) for name in names]

    return [
        step("end"),
        {"type": "parallel", "id": "both", "branches": [named("a", "a2"), named("b")], "max_concurrency": 2},
        {"type": "race", "id": "first", "branches": [named("r1"), named("r2")]},
        {"type": "loop", "id": "again", "condition": "index < 2", "body": named("turn")},
        {"type": "for_each", "id": "each", "collection": ["x", "y"], "body": named("card")},
        {
            "type": "router",
            "id": "way",
            "routes": [{"condition": "{{ input.go }}", "blocks": named("left")}],
            "default": named("right"),
        },
        {
            "type": "try_catch",
            "id": "safe",
            "try_block": named("t"),
            "catch_block": named("c"),
            "finally_block": named("f"),
        },
        {"type": "sub_sequence", "id": "sub", "blocks": named("end")},
    ]


def test_a_graph_has_a_node_for_each_block_and_an_edge_for_each_pair_of_neighbours() -> None:
    graph = graph_of(sequence(*every_block()))
    nodes = {node.id: node for node in graph.nodes}
    assert graph.top == ("end", "both", "first", "again", "each", "way", "safe", "sub")
    assert nodes["both"].lanes == (Lane("", ("a", "a2")), Lane("", ("b",)))
    assert nodes["way"].lanes == (Lane("input.go", ("left",)), Lane("default", ("right",)))
    assert [lane.title for lane in nodes["safe"].lanes] == ["try", "catch", "finally"]
    assert (nodes["each.card"].parent, nodes["sub.end"].parent, nodes["end"].parent) == ("each", "sub", "")
    assert (nodes["each.card"].name, nodes["each.card"].handler) == ("card", "do")
    assert Edge("a", "a2") in graph.edges
    assert len(graph.edges) == len(graph.top)  # 7 at the top, one in a branch
    wait = {"type": "step", "id": "gate", "handler": "wait_signal", "params": {"signal": "go"}}
    assert graph_of(sequence(wait)).nodes[0].title == "wait_signal go", "what it waits for"
    assert [nodes[name].title for name in ("both", "again", "each")] == [
        "parallel, 2 at once",
        "while index < 2",
        "for each item of 2 items",
    ]


async def test_what_the_log_says_of_a_step_has_its_node(tmp_path: Path) -> None:
    definition = sequence(*every_block())
    journal = MemoryJournal()
    async with service(tmp_path, journal) as flows:
        run = await flows.start(definition, {"go": True})
        await flows.finished(run.id)
        graph = await flows.graph(run.id)
        started = {e.event.block_id for e in await journal.read(run.id) if isinstance(e.event, StepStarted)}
    assert {"each[1].card", "again[1].turn", "sub.end"} <= started
    steps = {node.id for node in graph.nodes if node.type == "step"}
    assert {node_id(block_id) for block_id in started} <= steps
    assert set(graph.states) <= steps
    assert (graph.states["each.card"], graph.states["left"]) == ("finished", "finished")
    assert "right" not in graph.states


def test_of_several_iterations_the_one_that_needs_attention_counts() -> None:
    steps: list[tuple[str, StepState]] = [("e[0].s", "finished"), ("e[1].s", "failed"), ("e[2].s", "running")]
    assert node_states(steps) == {"e.s": "failed"}
    assert node_states(steps[::2]) == {"e.s": "running"}


def test_tree_of_every_kind_of_block() -> None:
    drawn = tree(graph_of(sequence(*every_block())), {"end": "finished", "a": "failed"})
    assert drawn.splitlines()[:6] == [
        "test",
        "├─ ✓ end  do",
        "├─ both  parallel, 2 at once",
        "│  ├─ [1]",
        "│  │  ├─ ✗ a  do",
        "│  │  └─ ○ a2  do",
    ]
    assert drawn.splitlines()[-2:] == ["└─ sub  sequence", "   └─ ○ end  do"]


# a name has none of the control characters that are left out here
NAMED = st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=["Cs"])


@given(name=st.text(NAMED, min_size=1, max_size=100), words=st.text(max_size=100))
def test_no_text_of_a_definition_reaches_the_terminal_as_code(name: str, words: str) -> None:
    blocks: list[dict[str, Any]] = [
        step("a", {"model": words}, "llm_call"),
        {"type": "router", "id": "r", "routes": [{"condition": words, "blocks": [step("b")]}]},
    ]
    drawn = tree(graph_of(sequence(*blocks, name=name))).split("\n")
    assert len(drawn) == 6
    assert all(map(str.isprintable, drawn))
