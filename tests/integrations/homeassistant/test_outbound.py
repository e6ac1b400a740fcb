"""What the notifications show."""

from __future__ import annotations

import pytest

from tailrace.delivery.planning.presenter import ANSWER_BY_COMMAND
from tailrace.delivery.port import Edit, Place, Send
from tailrace.integrations.homeassistant.outbound import notification_text, title_of

KITCHEN = Place("homeassistant", "kitchen", extra={"user": "home", "title": "kitchen"})


@pytest.mark.parametrize(
    ("place", "title"),
    [(KITCHEN, "Tailrace · kitchen"), (Place("homeassistant", "4f4e7158f0104430bcf336b0a588a1cd"), "Tailrace")],
)
def test_the_title_names_the_conversation_where_somebody_has_named_it(place: Place, title: str) -> None:
    assert title_of(place) == title


def test_an_open_question_says_which_event_answers_it() -> None:
    """Nobody can write below a notification."""
    asked = f"⚠️ **terminal** asks for approval\n\n{ANSWER_BY_COMMAND}"
    data = 'text: "/approve"\nuser: "home"\nconversation_id: "kitchen"'
    told = f"\n\nThat is, fire the event `tailrace_message` with this data:\n\n```yaml\n{data}\n```"
    assert notification_text(KITCHEN, Send("k", asked, purpose="approval")) == asked + told
    assert notification_text(KITCHEN, Edit("m", asked, purpose="approval")) == asked + told
    outcome = Edit("m", "⚠️ **terminal** asks for approval\n\n✅ Approved once", purpose="approval")
    assert notification_text(KITCHEN, outcome) == outcome.text
    assert notification_text(KITCHEN, Send("k", asked)) == asked


def test_any_name_stays_within_the_data_that_is_shown() -> None:
    place = Place("homeassistant", 'a"b\\\n```', extra={"user": "home"})
    shown = notification_text(place, Send("k", ANSWER_BY_COMMAND, purpose="approval"))
    assert shown.endswith('conversation_id: "a\\"b\\\\ \\x60\\x60\\x60"\n```')
