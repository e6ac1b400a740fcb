"""What a model has said of images is remembered for a while, for so many of them."""

from __future__ import annotations

from tailrace.providers.text_only import MAX_ROUTES, REPROBE_S, TextOnlyModels

BLIND, SEEING = ("p", "blind"), ("p", "seeing")


def test_it_is_forgotten_after_a_while_and_when_the_model_has_read_an_image() -> None:
    clock = {"now": 0.0}
    models = TextOnlyModels(clock=lambda: clock["now"])
    models.remember(BLIND)
    assert models.holds_all([BLIND])
    assert not models.holds_all([BLIND, SEEING]), "a stand-in may see it"
    clock["now"] = REPROBE_S
    assert not models.holds_all([BLIND])
    models.remember(BLIND)
    models.forget(BLIND)
    assert not models.holds_all([BLIND])


def test_the_oldest_is_forgotten_first() -> None:
    models = TextOnlyModels()
    for number in range(MAX_ROUTES + 1):
        models.remember(("p", str(number)))
    assert not models.holds_all([("p", "0")])
    assert models.holds_all([("p", "1"), ("p", str(MAX_ROUTES))])
