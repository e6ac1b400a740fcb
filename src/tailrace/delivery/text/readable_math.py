"""Formulas and footnotes as a terminal and a chat can show them: `$x^2$` is x², `[^1]` is ¹.

Pure. A formula with a command that is not known stays as it was written, and so do code and addresses.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_SPAN: Final = r"[^`]{1,400}?"
_READABLE: Final = re.compile(
    r"(?P<kept>(?<!`)(?P<ticks>`++)[\s\S]{1,600}?(?<!`)(?P=ticks)(?!`)|\]\([^()\s]{1,2000}\)|https?://[^\s)]{1,2000})"
    rf"|\$\$(?P<block>{_SPAN})\$\$|\\\[(?P<display>{_SPAN})\\\]|\\\((?P<inline>{_SPAN})\\\)"
    r"|(?<![\\$\w])\$(?P<dollar>(?!\s)[^$\n`]{1,200}(?<!\s))\$(?!\w)"
    r"|(?<![$])(?<!\\[)\]])\[\^(?P<note>\d{1,3})\](?:: ?)?"
)
_MARKS: Final = re.compile(r"([\\*_\[\]<>~|`#])")
_TOKEN: Final = re.compile(r"\\[A-Za-z]+|\\.|[{}^_]|[^\\{}^_]", re.DOTALL)
_HIGH: Final = str.maketrans("0123456789+-=()abcdefghijklmnoprstuvwxyzT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀ")
_LOW: Final = str.maketrans("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")
_NAMED: Final = re.findall(
    r"\S+",
    "cdot · times × div ÷ pm ± mp ∓ leq ≤ le ≤ geq ≥ ge ≥ neq ≠ ne ≠ approx ≈ equiv ≡ sim ∼ propto ∝ infty ∞ sum ∑ "
    "prod ∏ int ∫ partial ∂ nabla ∇ forall ∀ exists ∃ in ∈ notin ∉ subset ⊂ subseteq ⊆ cup ∪ cap ∩ emptyset ∅ to → "
    "rightarrow → leftarrow ← Rightarrow ⇒ implies ⇒ iff ⇔ mapsto ↦ ldots … cdots ⋯ dots … land ∧ lor ∨ neg ¬ circ ∘ "
    "ell ℓ hbar ℏ langle ⟨ rangle ⟩ mid | lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉",
)
_SIGNS: Final = {
    **dict(zip(_NAMED[::2], _NAMED[1::2], strict=True)),
    **dict.fromkeys(("left", "right", "displaystyle", "limits", "big", "Big", "!"), ""),
    **dict.fromkeys((",", ";", ":", " ", "quad", "qquad"), " "),
    **{name: name for name in ("sin", "cos", "tan", "log", "ln", "exp", "max", "min", "lim", "det", "gcd", *"{}%$&#_")},
}
_PLAIN: Final = frozenset({"text", "mathrm", "mathbf", "mathit", "mathcal", "operatorname", "boldsymbol"})


def readable(text: str) -> str:
    """The Markdown with its formulas and footnotes as they can be read."""
    return _READABLE.sub(_replaced, text) if "$" in text or "\\" in text or "[^" in text else text


def _replaced(found: re.Match[str]) -> str:
    if note := found["note"]:
        return note.translate(_HIGH) + (" " if ":" in found[0] else "")
    formula = found["block"] or found["display"] or found["inline"] or found["dollar"]
    if found["kept"] or (found["dollar"] and not _is_formula(formula)):
        return found[0]
    shown = in_unicode(formula)
    return found[0] if shown is None else _MARKS.sub(r"\\\1", shown)


def _is_formula(text: str) -> bool:
    """Amounts of money and names of variables stand between dollar signs too."""
    return bool(re.search(r"[\\^_=<>{}+]", text)) or len(text) == 1


def in_unicode(formula: str) -> str | None:
    """None for one that is more than letters, signs, indices, fractions and roots."""
    try:
        return re.sub(r"\s+", " ", _Reader(formula).read()).strip()
    except (KeyError, IndexError, RecursionError):
        return None


class _Reader:
    """Reads the formula once, from left to right. Raises `KeyError` for what is not known, `IndexError` at its end."""

    def __init__(self, formula: str) -> None:
        self._tokens = _TOKEN.findall(formula.strip())[::-1]

    def read(self, end: str = "") -> str:
        parts: list[str] = []
        while self._tokens or end:
            token = self._tokens.pop()
            if token == end:
                break
            parts.append(self._part(token))
        return "".join(parts)

    def _part(self, token: str) -> str:
        match token:
            case "^":
                return _index(self._argument(), _HIGH, "^")
            case "_":
                return _index(self._argument(), _LOW, "_")
            case "{":
                return self.read("}")
            case "}":
                raise KeyError(token)
            case "\\frac" | "\\dfrac" | "\\tfrac":
                return f"{_grouped(self._argument())}/{_grouped(self._argument())}"
            case "\\sqrt":
                return f"√{_grouped(self._argument())}"
            case _ if token[0] != "\\":
                return token
            case _ if token[1:] in _PLAIN:
                return self._argument()
            case _:
                return _SIGNS[name] if (name := token[1:]) in _SIGNS else _greek(name)

    def _argument(self) -> str:
        while (token := self._tokens.pop()).isspace():
            pass
        return self._part(token)


def _index(text: str, letters: dict[int, int], sign: str) -> str:
    if all(ord(char) in letters for char in text):
        return text.translate(letters)
    return f"{sign}{_grouped(text)}"


def _grouped(text: str) -> str:
    return text if len(text) == 1 or text.isdecimal() else f"({text})"


def _greek(name: str) -> str:
    letter = name.removeprefix("var").replace("lambda", "lamda").replace("Lambda", "Lamda")
    return unicodedata.lookup(f"GREEK {'CAPITAL' if name[0].isupper() else 'SMALL'} LETTER {letter.upper()}")
