"""The same Markdown in each platform's own markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delivery.text.plain_text import plain_text
from properties import examples
from tailrace.delivery.planning.presenter import code_span, fenced
from tailrace.delivery.text.balance import balance
from tailrace.delivery.text.markdown import Table, blocks
from tailrace.delivery.text.markup import columns
from tailrace.integrations.discord.adapter import discord_literal, discord_text
from tailrace.integrations.matrix.markup import matrix_html
from tailrace.integrations.telegram.markup import Entity, RichText, telegram_text
from tailrace.integrations.whatsapp.adapter import whatsapp_markup

SAMPLE = """\
# Title
Some **bold *both* text**, `a<b`, ~~gone~~ and [link](https://e.org/?a=1&b=2).
- one
  - two
> said

```py
x < 1
```"""

MARKS = "*_~`[]()!\\<>#-|&: \n\tab1😀漢"
texts = st.text(alphabet=MARKS, max_size=200)


def test_telegram_counts_in_utf16_units() -> None:
    assert telegram_text("😀 **bo😀ld** `c`") == RichText("😀 bo😀ld c", (Entity("bold", 3, 6), Entity("code", 10, 1)))


def test_one_long_cell_does_not_pad_every_row_of_its_table() -> None:
    rows = "".join(f"| {'long ' * 60 if number == 3 else number} | v{number} |\n" for number in range(60))
    [table] = blocks(f"| name | value |\n|---|---|\n{rows}".rstrip())
    assert isinstance(table, Table)
    lines = columns(table).split("\n")
    assert lines[1:3] == [f"{'-' * 40}  -----", f"0{' ' * 41}v0"]
    assert lines[5] == f"{('long ' * 60).strip()}  v3"
    assert len("\n".join(lines)) < 4096


def test_of_more_entities_than_telegram_takes_addresses_and_code_stay() -> None:
    items = "\n".join(f"- **{number}**: [page](https://e.org/{number})" for number in range(70))
    kinds = [entity.type for entity in telegram_text(f"{items}\n\n```sh\nls\n```").entities]
    assert (kinds.count("text_link"), kinds.count("pre"), kinds.count("bold")) == (70, 1, 29)
    assert kinds[:4] == ["bold", "text_link", "bold", "text_link"]


def test_telegram_shows_the_address_of_each_link_beyond_those_that_it_takes() -> None:
    rich = telegram_text(" ".join(f"[page](https://e.org/{number})" for number in range(102)))
    assert (len(rich.entities), rich.text[-46:]) == (100, "page (https://e.org/100) page (https://e.org/101)"[-46:])


def test_telegram_shows_every_kind_of_markup_as_an_entity() -> None:
    rich = telegram_text(SAMPLE)
    assert rich.text == "Title\nSome bold both text, a<b, gone and link.\n• one\n  ◦ two\nsaid\n\nx < 1"
    kinds = [(entity.type, rich.text[entity.offset : entity.offset + entity.length]) for entity in rich.entities]
    assert kinds == [
        ("bold", "Title"),
        ("italic", "both"),
        ("bold", "bold both text"),
        ("code", "a<b"),
        ("strikethrough", "gone"),
        ("text_link", "link"),
        ("blockquote", "said"),
        ("pre", "x < 1"),
    ]
    assert rich.entities[-1].language == "py"
    assert rich.entities[5].url == "https://e.org/?a=1&b=2"


@given(text=texts)
@settings(max_examples=examples(400))
def test_telegrams_entities_lie_within_the_text_and_nest(text: str) -> None:
    rich = telegram_text(text)
    end = len(rich.text.encode("utf-16-le")) // 2
    for entity in rich.entities:
        assert 0 <= entity.offset < entity.offset + entity.length <= end
        for other in rich.entities:
            starts = sorted([(entity.offset, entity.length), (other.offset, other.length)])
            (a, la), (b, lb) = starts
            assert b >= a + la or b + lb <= a + la or a == b, "two entities overlap without nesting"


@pytest.mark.parametrize(
    ("text", "shown", "styled"),
    [
        ("2*3*4=24, 5*3=15 and 2*2=4", "2*3*4=24, 5*3=15 and 2*2=4", []),
        ("2*x*y + a*b*c", "2*x*y + a*b*c", []),
        ("x**n + y**m, 10**6** bytes", "x**n + y**m, 10**6** bytes", []),
        ("**2*3*4** is *24*", "2*3*4 is 24", ["2*3*4", "24"]),
        ("**un**happy Dampf**schiff**fahrt", "unhappy Dampfschifffahrt", ["un", "schiff"]),
        ("有3**个**问题, **1**st", "有3个问题, 1st", ["个", "1"]),
        (r"\(a*b*c\), $$x_1 \, \{x_2\}$$, $a*b*c$ for $5", "a*b*c, x₁ {x₂}, $a*b*c$ for $5", []),
        (
            r"$\begin{matrix} a*b*c \end{matrix}$ and `$x^2$`",
            r"$\begin{matrix} a*b*c \end{matrix}$ and $x^2$",
            ["$x^2$"],
        ),
        ("Proven[^1].\n\n[^1]: https://e.org/a", "Proven¹.\n\n¹ https://e.org/a", []),
    ],
)
def test_telegram_keeps_the_signs_of_arithmetic_and_shows_math_that_can_be_read(
    text: str, shown: str, styled: list[str]
) -> None:
    rich = telegram_text(text)
    assert rich.text == shown
    assert [rich.text[entity.offset : entity.offset + entity.length] for entity in rich.entities] == styled


TASKS = "- [x] **milk**\n- [ ] bread\n  1. [X] rye\n- [x]y\n- [a](https://e.org)\n- `[x] code`"


def test_tasks_have_boxes_where_the_markup_has_no_task_lists() -> None:
    assert telegram_text(TASKS).text == "☑ milk\n☐ bread\n  1. ☑ rye\n• [x]y\n• a\n• [x] code"
    assert whatsapp_markup(TASKS) == "☑ *milk*\n☐ bread\n  1. ☑ rye\n• [x]y\n• a (https://e.org)\n• `[x] code`"
    assert matrix_html("- [x] **milk**\n- [ ] bread") == "<ul><li>☑ <strong>milk</strong></li><li>☐ bread</li></ul>"
    assert matrix_html("1. [ ] rye") == "<ol><li>☐ rye</li></ol>"


def test_an_image_is_a_link_and_within_a_link_it_is_its_words() -> None:
    image, linked = "![pic](https://e.org/p.png)", "[![pic](https://i.org/p)](https://l.org)"
    assert telegram_text(image) == RichText("pic", (Entity("text_link", 0, 3, "https://e.org/p.png"),))
    assert telegram_text(linked) == RichText("pic", (Entity("text_link", 0, 3, "https://l.org"),))
    assert whatsapp_markup(f"{image} {linked}") == "pic (https://e.org/p.png) pic (https://l.org)"
    assert matrix_html(linked) == '<p><a href="https://l.org">pic</a></p>'


def test_whatsapp_has_marks_of_its_own() -> None:
    assert whatsapp_markup(SAMPLE) == (
        "*Title*\nSome *bold _both_ text*, `a<b`, ~gone~ and link (https://e.org/?a=1&b=2).\n"
        "• one\n  ◦ two\n> said\n\n```\nx < 1\n```"
    )


@pytest.mark.parametrize(
    ("text", "whatsapp", "plain"),
    [
        ("5*3=15 and 2*2=4", "5*3=15 and 2*2=4", "5*3=15 and 2*2=4"),
        ("**un**happy", "unhappy", "unhappy"),
        ("re~~do~~ **[is](https://e.org)**no", "redo is (https://e.org)no", "redo is (https://e.org)no"),
        ("**a**`b` *c*, *d*", "*a*`b` _c_, _d_", "ab c, d"),
        ("这是**重点**内容", "这是*重点*内容", "这是重点内容"),
        ("นี่**สำคัญ**มาก 서울**은**요", "นี่สำคัญมาก 서울*은*요", "นี่สำคัญมาก 서울은요"),
        ("при**вет**, **за**мок", "привет, замок", "привет, замок"),
        ("2**3 and 4**5", "2**3 and 4**5", "2**3 and 4**5"),
        ("10**6** or ~~1~~2", "10**6** or ~~1~~2", "10**6** or ~~1~~2"),
        ("x**n + y**m, a~~b~~c", "x**n + y**m, abc", "x**n + y**m, abc"),
        ("a***b***c ***d***", "a***b***c _*d*_", "a***b***c d"),
    ],
)
def test_there_are_no_marks_inside_of_a_word_and_a_product_keeps_its_sign(text: str, whatsapp: str, plain: str) -> None:
    assert (whatsapp_markup(text), plain_text(text)) == (whatsapp, plain)


def test_a_power_in_a_heading_or_a_table_keeps_its_sign() -> None:
    assert whatsapp_markup("# 2**3 and 4**5") == "*2**3 and 4**5*"
    assert plain_text("|a|\n|-|\n|2**3 and 4**5|") == "a\n-------------\n2**3 and 4**5"


def test_plain_text_has_no_marks() -> None:
    assert plain_text(SAMPLE) == (
        "Title\nSome bold both text, a<b, gone and link (https://e.org/?a=1&b=2).\n• one\n  ◦ two\n> said\n\nx < 1"
    )


def test_discord_reads_markdown_itself_but_for_tables() -> None:
    write = discord_text
    assert write(SAMPLE) == SAMPLE
    table = "| a | b |\n|---|---|\n| 1 | 漢字 |"
    assert write(f"x\n{table}\ny") == "x\n```\na  b\n-  ----\n1  漢字\n```\ny"
    assert write(f"```\n{table}\n```") == f"```\n{table}\n```"
    link = "| a |\n|---|\n| [docs](https://x.org) |"
    assert write(link) == "```\na\n--------------------\ndocs (https://x.org)\n```"
    assert write("##### deep **x**") == "**deep x**"


def test_matrix_is_html() -> None:
    assert matrix_html(SAMPLE) == (
        "<h1>Title</h1><p>Some <strong>bold <em>both</em> text</strong>, <code>a&lt;b</code>, <del>gone</del> and "
        '<a href="https://e.org/?a=1&amp;b=2">link</a>.</p><ul><li>one<ul><li>two</li></ul></li></ul>'
        '<blockquote>said</blockquote><pre><code class="language-py">x &lt; 1\n</code></pre>'
    )
    assert matrix_html("1. a\n2. b\n- c") == "<ol><li>a</li><li>b</li></ol><ul><li>c</li></ul>"
    assert "<thead><tr><th>a</th></tr></thead><tbody><tr><td>1</td></tr></tbody>" in matrix_html("|a|\n|-|\n|1|")


class _Strict(HTMLParser):
    """Every tag that opens closes again, in order, and there are no others than ours."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert re.fullmatch(
            "p|h[1-6]|ul|ol|li|blockquote|pre|code|a|strong|em|del|br|hr|table|thead|tbody|tr|th|td", tag
        )
        assert {name for name, _ in attrs} <= {"href", "class", "start"}
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@given(text=texts)
@settings(max_examples=examples(400))
def test_matrix_html_is_well_formed_whatever_the_model_writes(text: str) -> None:
    parser = _Strict()
    parser.feed(matrix_html(text))
    parser.close()
    assert parser.open == []


def test_html_from_the_model_stays_text() -> None:
    assert matrix_html("<script>x</script> [a](javascript:x)") == "<p>&lt;script&gt;x&lt;/script&gt; a</p>"
    assert telegram_text("[a](javascript:x)") == RichText("a")


@given(text=texts)
@settings(max_examples=examples(300))
def test_nothing_that_a_model_writes_makes_a_writer_fail(text: str) -> None:
    for write in (discord_text, whatsapp_markup, plain_text, matrix_html, telegram_text):
        write(text)
        write(balance(text, " ▌"))


@given(text=st.text(alphabet="`a \n", max_size=40))
def test_J111_a_command_in_a_code_block_cannot_end_it(text: str) -> None:
    [block] = blocks(fenced(text))
    assert block[1:] == (text,)


@given(text=st.text(alphabet="`ab *", min_size=1, max_size=20).filter(lambda text: text.strip() == text))
def test_a_code_span_shows_its_text_whatever_is_in_it(text: str) -> None:
    assert telegram_text(code_span(text)) == RichText(text, (Entity("code", 0, len(text)),))


@pytest.mark.parametrize(
    ("partial", "shown"),
    [
        ("some **bo", "some **bo ▌**"),
        ("some **", "some ▌"),
        ("a `co", "a `co ▌`"),
        ("see [the docs](https://exam", "see the docs ▌"),
        ("```py\nprint(", "```py\nprint( ▌\n```"),
        ("```py\nprint()\n```", "```py\nprint()\n```\n▌"),
        ("***all", "***all ▌***"),
        ("done.\n", "done.\n▌"),
        ("snake_case", "snake_case ▌"),
        ("5 * 3", "5 * 3 ▌"),
    ],
)
def test_G83_partial_text_is_balanced(partial: str, shown: str) -> None:
    assert balance(partial, " ▌") == shown


WIDE_TABLE = (
    "| river | length in kilometres | where it ends |\n|---|--:|---|\n| **Danube** | 2850 | Black Sea |\n| Po | | |"
)


def test_a_table_that_is_wider_than_a_phone_is_a_record_for_each_row() -> None:
    records = "river: Danube\nlength in kilometres: 2850\nwhere it ends: Black Sea\n\nriver: Po"
    assert plain_text(WIDE_TABLE) == records
    shown = telegram_text(WIDE_TABLE)
    assert shown.text == records
    assert [entity.type for entity in shown.entities if entity.offset == 0] == ["bold"]
    assert "pre" not in {entity.type for entity in shown.entities}
    assert discord_text(WIDE_TABLE).startswith("**river**: **Danube**\n**length in kilometres**: 2850\n")


def test_a_table_has_even_columns() -> None:
    [table] = blocks("| name | n |\n|:--|--:|\n| x | 1 |\n| longer | |")
    assert columns(table) == "name    n\n------  -\nx       1\nlonger"  # type: ignore[arg-type]


def test_the_cells_of_a_table_stand_where_it_says() -> None:
    [table] = blocks("| a | price | where |\n|---|--:|:-:|\n| x | 1 | up |\n| y | 1000 | down |")
    shown = ["a  price  where", "-  -----  -----", "x      1   up", "y   1000  down"]
    assert columns(table).split("\n") == shown  # type: ignore[arg-type]


def test_an_emoji_of_several_is_as_wide_as_one() -> None:
    family, thumb = "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd"
    [table] = blocks(f"| a | b |\n|--|--|\n| {family} | x |\n| {thumb} | y |")
    assert columns(table) == f"a   b\n--  -\n{family}  x\n{thumb}  y"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**not bold**", r"\*\*not bold\*\*"),
        ("a_b ~c~ |d| `e` \\", r"a_b \~c\~ \|d\| \`e\` \\"),
        ("> quote\n# heading\n - item\n5 - 3 > 1 #", "\\> quote\n\\# heading\n \\- item\n5 - 3 > 1 #"),
        ("[a](b)", r"\[a](b)"),
        ("see https://a.b/c_d_e*f, or_so", r"see https://a.b/c_d_e*f, or_so"),
        ("plain", "plain"),
    ],
)
def test_discord_shows_a_literal_text_as_it_stands(text: str, shown: str) -> None:
    assert discord_literal(text) == shown
