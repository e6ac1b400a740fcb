"""The text of a page: what people would read of it, and no more time than it is worth."""

from __future__ import annotations

import time

import pytest

from tailrace.tools.web.html_text import text_of


def text(html: str, base: str = "https://e.example/d/p") -> str:
    return text_of(html, base)[1]


def test_a_page() -> None:
    title, body = text_of(
        """<!doctype html><html><head><title> A &amp; B
        </title><style>p{}</style><script>let x = "<p>no</p>";</script></head>
        <body><nav><a href="/">Home</a></nav><h1>Head</h1><p>One   two<br>three &lt;b&gt; <b>bold</b>.</p>
        <ul><li>first<li>second <a href="x.html">link</a></ul>
        <pre>  keep
    this</pre><noscript>no</noscript><svg><text>no</text></svg>
        <table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
        <img alt="a cat"><img src=x></body></html>""",
        "https://e.example/d/p",
    )
    assert title == "A & B"
    assert body.split("\n") == [
        *("[Home](https://e.example/)", "", "# Head", "", "One two", "three <b> bold.", ""),
        *("- first", "- second [link](https://e.example/d/x.html)", "", "  keep", "    this", ""),
        *("| a | b", "| 1 | 2", "", "[image: a cat]"),
    ]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a<p>b", "a\n\nb"),
        ("a</p></div></a></pre>b", "a\n\nb"),
        ("<a href='javascript:x()'>click</a>", "click"),
        ("<a href='http://[bad'>x</a>", "x"),
        ("<a href='#top'></a>after", "after"),
        ("<base href='https://o.example/'><a href=y>z</a>", "[z](https://o.example/y)"),
        ("<script>never closed <p>x</p>", ""),
        ("<template><p>no</p></template>yes", "yes"),
        ("before <!-- hidden --> after", "before after"),
        ("&nbsp;&euro;&#x41;&unknown;", "€A&unknown;"),
        ("<p>x</p>" * 3, "x\n\nx\n\nx"),
        ("<pre><b>a</b>\n\n\n\nb</pre>", "a\n\nb"),
    ],
)
def test_pieces(html: str, expected: str) -> None:
    assert text(html) == expected


@pytest.mark.parametrize(
    "piece", ["<a ", "<!--", "<![CDATA[", "<?", "</a ", "<a href='", "<![", "&#", "<script><!--", "<p>" * 50, "<svg>"]
)
def test_a_page_made_to_be_slow_is_given_up(piece: str) -> None:
    began = time.monotonic()
    text_of(piece * (500_000 // len(piece)), "https://e.example/", max_parse_s=0.5)
    assert time.monotonic() - began < 15
