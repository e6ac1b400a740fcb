"""The ids that people and programs know runs by: `ins_…` is an instance of a sequence, `seq_…` a sequence, `run_…` any
other run.

The journal's own ids all begin with `run_`, so that they sort by time whatever a run is. Both forms name the same run.
"""

from __future__ import annotations

import re
from typing import Final

from tailrace.journal.fold import SEQUENCE
from tailrace.ports import Run

DEFINITION_KIND: Final = "definition"  # of a run that keeps one version of a sequence
RUN: Final = "run_"
_PREFIXES: Final = {SEQUENCE: "ins_", DEFINITION_KIND: "seq_"}
_PUBLIC: Final = re.compile("|".join(_PREFIXES.values()))


def public_id(run: Run) -> str:
    return public_form(run.id, run.new.kind)


def public_form(run_id: str, kind: str) -> str:
    """The id of a run of this kind as it is shown."""
    prefix = _PREFIXES.get(kind, RUN)
    return prefix + run_id.removeprefix(RUN) if run_id.startswith(RUN) else run_id


def run_id_of(given: str) -> str:
    """The journal's id of the run that is named so; any other text unchanged."""
    found = _PUBLIC.match(given)
    return RUN + given[found.end() :] if found else given
