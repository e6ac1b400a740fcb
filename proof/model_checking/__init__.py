"""Explores every state that a small model of a protocol can reach, and prints the shortest way to a broken rule."""

from __future__ import annotations

from proof.model_checking.explorer import Exploration, Model, RuleBroken, Step, TooManyStates, explore

__all__ = ["Exploration", "Model", "RuleBroken", "Step", "TooManyStates", "explore"]
