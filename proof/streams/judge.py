"""Reads histories of streamed answers and names what went wrong. A program of its own: it imports nothing of the rest.

    python judge.py HISTORY.jsonl…

A history has one JSON object a line: `t` (seconds), `by` (who writes), `run`, `what`, and what belongs to it:

    provider  asked    attempt, length      a request for the answer came; a whole answer has `length` words
    provider  said     attempt, n, hash     it sent word `n`; the same word of another attempt has another hash
    provider  told                          the product told the model that its call has no result, or none it knows of
    tool      ran      call                 the product ran the tool that the model asked for
    client    planned  tools                the model will ask for so many tool calls before it answers
    client    accepted                      the product took the request
    client    refused                       the product did not take the request, and said so
    client    halted                        the product said that it stopped the run
    VIEWER    saw      n, hash              a word on the viewer's screen; n is 0 where the word has no number
    VIEWER    cleared                       the product's protocol told the viewer to clear its screen: what was there
                                            is not compared with the end, but it had to be in order
    VIEWER    ended    how                  complete | failed | stopped: the product said so; broken: the connection
                                            broke; closed: it ended in good order without a word; waiting: no end came
    product   kept     n, hash              a word of the answer as the product has it in the end
    product   status   how                  complete | failed | stopped | running | unknown

The anomalies:

    lost       a word is missing between two that were shown or kept, or from an answer that was called complete
    doubled    a word is shown or kept twice, or a tool ran twice
    reordered  a word comes after a later one
    ghost      a word was shown that the product later denies, or that the model never said; a tool ran unasked
    zombie     a writer whose turn was over got through: a word of an earlier attempt after one of a later attempt, or
               an answer that was stopped and went on to its end
    silent     a request was accepted, and neither an answer nor a word about its failure came
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ANOMALIES = ("lost", "doubled", "reordered", "ghost", "zombie", "silent")
ENDED = {"complete", "failed", "stopped"}  # what a product says of a run that is over


@dataclass(frozen=True)
class Word:
    """`n` is 0 for a word that is not one of the model's, such as a warning of the product's."""

    n: int
    digest: str


@dataclass
class Run:
    """All that a history says of one request."""

    length: int = 0
    said: dict[str, int] = field(default_factory=dict)  # the hash of each word that the provider sent: its attempt
    screens: dict[str, list[Word]] = field(default_factory=dict)
    cleared: list[tuple[str, list[Word]]] = field(default_factory=list)  # what was on a viewer's screen before
    ends: dict[str, str] = field(default_factory=dict)
    kept: list[Word] = field(default_factory=list)
    status: str = ""  # empty: the product keeps nothing that could be asked for
    tools: Counter[str] = field(default_factory=Counter)
    planned_tools: int = 0
    model_told: bool = False  # of a call without a result
    client: set[str] = field(default_factory=set)  # accepted, refused, halted


@dataclass(frozen=True)
class Finding:
    anomaly: str
    what: str


@dataclass(frozen=True)
class Verdict:
    """`outcome` says what the client got: `whole`, `stopped`, or `told` that it failed; `told` too where the model was
    told that its call has no known result. It counts without findings."""

    run: str
    outcome: str
    findings: tuple[Finding, ...]

    @property
    def anomalies(self) -> tuple[str, ...]:
        found = {finding.anomaly for finding in self.findings}
        return tuple(name for name in ANOMALIES if name in found)


def read_runs(lines: Iterable[str]) -> dict[str, Run]:
    """Raises `ValueError` on a line that is no record of a history: a judge guesses nothing."""
    runs: dict[str, Run] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            _note(runs.setdefault(record["run"], Run()), record)
        except (KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"line {number} is no record of a history ({exc!r}): {line[:120]!r}") from exc
    return runs


def _note(run: Run, record: dict[str, object]) -> None:
    by, what = str(record["by"]), record["what"]
    match by, what:
        case "provider", "asked":
            run.length = _number(record, "length")
        case "provider", "said":
            run.said[str(record["hash"])] = _number(record, "attempt")
        case "provider", "told":
            run.model_told = True
        case "tool", "ran":
            run.tools[str(record["call"])] += 1
        case "client", "planned":
            run.planned_tools = _number(record, "tools")
        case "client", "accepted" | "refused" | "halted":
            run.client.add(str(what))
        case "product", "kept":
            run.kept.append(_word(record))
        case "product", "status":
            run.status = str(record["how"])
        case _, "saw":
            run.screens.setdefault(by, []).append(_word(record))
        case _, "cleared":
            run.cleared.append((by, run.screens.get(by, [])))
            run.screens[by] = []
        case _, "ended":
            run.screens.setdefault(by, [])
            run.ends[by] = str(record["how"])
        case _:
            raise ValueError(f"{by} cannot write {what!r}")


def _word(record: dict[str, object]) -> Word:
    return Word(_number(record, "n"), str(record["hash"]))


def _number(record: dict[str, object], name: str) -> int:
    value = record[name]
    if not isinstance(value, int):
        raise TypeError(f"{name} is no whole number")
    return value


def judge(name: str, run: Run) -> Verdict:
    shown = [*run.cleared, *run.screens.items()]
    findings = [
        *(finding for viewer, screen in shown for finding in _of_words(viewer, screen, run)),
        *(finding for viewer, screen in run.screens.items() for finding in _of_end(viewer, screen, run)),
        *_of_kept(run),
        *_of_tools(run),
        *_of_silence(run),
        *_of_stop(run),
    ]
    return Verdict(name, _outcome(run), tuple(findings))


def _numbered(words: Sequence[Word]) -> list[Word]:
    return [word for word in words if word.n]


def _of_words(who: str, words: Sequence[Word], run: Run) -> Iterator[Finding]:
    """What is wrong with these words whatever the product says of them: each once, in order, none missing between."""
    seen: set[int] = set()
    last = newest = 0
    for word in _numbered(words):
        attempt = run.said.get(word.digest)
        if attempt is None:
            yield Finding("ghost", f"{who} has word {word.n} as the model never said it")
        elif attempt < newest:
            yield Finding("zombie", f"{who} has word {word.n} of attempt {attempt} after one of attempt {newest}")
        elif word.n in seen:
            yield Finding("doubled", f"{who} has word {word.n} twice")
        elif word.n < last:
            yield Finding("reordered", f"{who} has word {word.n} after word {last}")
        seen.add(word.n)
        last, newest = max(last, word.n), max(newest, attempt or 0)
    missing = sorted(set(range(1, last + 1)) - seen)
    if missing:
        yield Finding("lost", f"{who} lacks {_spans(missing)}, and has word {last}")


def _of_end(who: str, screen: Sequence[Word], run: Run) -> Iterator[Finding]:
    """What is wrong with what a viewer has when its stream is over."""
    words, end = _numbered(screen), run.ends.get(who, "waiting")
    if run.status in ENDED and not _only_failed(run):
        kept = {word.digest for word in run.kept}
        ghosts = sorted({word.n for word in words if word.digest in run.said and word.digest not in kept})
        if ghosts:
            yield Finding("ghost", f"{who} has {_spans(ghosts)}, which the product denies")
    if end == "complete":
        if not words:
            yield Finding("silent", f"{who} got an empty answer that was called complete")
        elif missing := sorted(set(range(max(word.n for word in words) + 1, run.length + 1))):
            yield Finding("lost", f"{who} lacks {_spans(missing)} of an answer that was called complete")
    elif end == "closed":
        yield Finding("silent", f"the stream of {who} ended without a word")
    elif end == "waiting":
        yield Finding("silent", f"{who} got neither an end nor a word")


def _of_kept(run: Run) -> Iterator[Finding]:
    if not _numbered(run.kept):
        if run.status == "complete":
            yield Finding("silent", "the product calls an empty answer complete")
        return
    yield from _of_words("the product", run.kept, run)
    last = max(word.n for word in run.kept)
    if run.status == "complete" and last < run.length:
        yield Finding("lost", f"the product lacks {_spans(range(last + 1, run.length + 1))} and calls it complete")


def _of_tools(run: Run) -> Iterator[Finding]:
    for call, times in run.tools.items():
        if times > 1:
            yield Finding("doubled", f"the tool ran {times} times for {call}")
    if len(run.tools) > run.planned_tools:
        yield Finding("ghost", f"{len(run.tools)} tool calls ran, and the model asked for {run.planned_tools}")
    if len(run.tools) < run.planned_tools and _outcome(run) == "whole":
        yield Finding("lost", f"{len(run.tools)} of {run.planned_tools} tool calls ran, and the answer is complete")


def _of_silence(run: Run) -> Iterator[Finding]:
    if "accepted" not in run.client:
        return
    if run.status == "running":
        yield Finding("silent", "the product calls the run unfinished for as long as it was asked")
    if run.status == "unknown":
        yield Finding("silent", "the product accepted the run and does not know it")
    if not run.ends and not run.status:
        yield Finding("silent", "the run was accepted, and nothing is known of it")


def _of_stop(run: Run) -> Iterator[Finding]:
    """A stop that the product confirmed; the answer is so long that it could not have been at its end by itself."""
    ends = [word.n for words in (*run.screens.values(), run.kept) for word in words]
    if "halted" in run.client and run.length and max(ends, default=0) >= run.length:
        yield Finding("zombie", "the run was stopped, and its answer went on to its end")


def _only_failed(run: Run) -> bool:
    """A product that calls a run failed and keeps none of its words has said what became of them."""
    return run.status in ENDED - {"complete"} and not _numbered(run.kept)


def _outcome(run: Run) -> str:
    ends = {run.status, *run.ends.values()}
    if "halted" in run.client:
        return "stopped"
    return "whole" if "complete" in ends and not run.model_told else "told"


def _spans(numbers: Iterable[int]) -> str:
    """`words 3-5, 9`"""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    named = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return f"words {', '.join(named)}"


def judge_file(path: Path) -> list[Verdict]:
    with path.open(encoding="utf-8") as lines:
        return [judge(name, run) for name, run in read_runs(lines).items()]


def main(paths: Sequence[str]) -> int:
    if not paths:
        sys.stderr.write("usage: python judge.py HISTORY.jsonl…\n")
        return 2
    try:
        verdicts = [verdict for path in paths for verdict in judge_file(Path(path))]
    except (OSError, ValueError) as exc:
        sys.stderr.write(f"error: {exc}\n")
        return 2
    for verdict in verdicts:
        for finding in verdict.findings:
            sys.stdout.write(f"{verdict.run}: {finding.anomaly}: {finding.what}\n")
    counts = Counter(", ".join(verdict.anomalies) or verdict.outcome for verdict in verdicts)
    sys.stdout.write(f"{len(verdicts)} runs: {'; '.join(f'{name} {count}' for name, count in counts.items())}\n")
    return 1 if any(verdict.findings for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
