"""The language of scenarios: what a name means, and what is said to a name that means nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.testing.provider import REPLIES, Break, Offset, Scenario, Status, UnknownScenario, catalogue, scenario
from tailrace.testing.provider.edits import EDITS


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ok", Scenario("ok")),
        ("cut@120", Scenario("cut@120", broken=Break("cut", Offset(120)))),
        ("stall@50%", Scenario("stall@50%", broken=Break("stall", Offset(50, per_cent=True)))),
        ("pings", Scenario("pings", broken=Break("pings"))),
        ("status-429", Scenario("status-429", status=Status(429))),
        ("status-429-after-2", Scenario("status-429-after-2", status=Status(429, "2"))),
        ("status-503-after-date-30", Scenario("status-503-after-date-30", status=Status(503, "date:30"))),
        ("status-502-html", Scenario("status-502-html", status=Status(502, html=True))),
        (
            "tools+crlf+bom+drip@3+pace@0.5",
            Scenario(
                "tools+crlf+bom+drip@3+pace@0.5",
                REPLIES["tools"].reply,
                framing=("crlf", "bom"),
                write_bytes=3,
                pace_s=0.5,
            ),
        ),
        # an edit brings the reply that shows it, unless the name chooses another
        ("index-zero", Scenario("index-zero", REPLIES["parallel"].reply, edits=("index-zero",))),
        ("tools+index-zero", Scenario("tools+index-zero", REPLIES["tools"].reply, edits=("index-zero",))),
    ],
)
def test_a_name_means_a_scenario(name: str, meant: Scenario) -> None:
    assert scenario(name) == meant


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "no scenario term ''"),
        ("gpt-5", "no scenario term 'gpt-5'"),
        ("cut", "write 'cut@N', not 'cut'"),
        ("html@3", "write 'html', not 'html@3'"),
        ("cut@-1", "'-1' is not a number of 0 or more"),
        ("cut@nan", "'nan' is not a number of 0 or more"),
        ("status-418", "status 418 is none of"),
        ("ok+tools", "names two replies: 'ok' and 'tools'"),
        ("no-terminal@3", "no scenario term 'no-terminal'"),
    ],
)
def test_a_name_that_means_nothing_is_told_so(name: str, said: str) -> None:
    with pytest.raises(UnknownScenario, match=said):
        scenario(name)


@given(st.text(alphabet=st.sampled_from("okcutstall@+%-.0123456789abe"), max_size=20))
def test_any_other_text_is_a_scenario_or_a_clear_error(name: str) -> None:
    error: UnknownScenario | None = None
    try:
        assert scenario(name).name == name
    except UnknownScenario as exc:
        error = exc
    assert error is None or len(str(error).splitlines()) == 1


def test_everything_in_the_catalogue_can_be_named() -> None:
    listed = [name for _, terms in catalogue() for name, _ in terms]
    assert len(listed) == len(set(listed))
    filled = {"CODE": "429", "KIND": "server", "@N?": "", "@N": "@10", "@S": "@1", "-S": "-2"}
    for name in listed:
        for placeholder, value in filled.items():
            name = name.replace(placeholder, value)  # noqa: PLW2901
        assert scenario(name).name == name
    assert {name for name in EDITS if "error-" not in name} <= set(listed)


def test_an_offset_never_exceeds_the_body() -> None:
    assert [Offset(10).within(4), Offset(50, per_cent=True).within(7), Offset(100, per_cent=True).within(7)] == [
        4,
        3,
        7,
    ]
