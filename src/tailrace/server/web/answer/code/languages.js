// What the languages look like: comments, strings, numbers, words. Enough for colours, not a grammar.

const words = (text) => new Set(text.split(" "));
const DOUBLE = '"(?:[^"\\\\]|\\\\.?)*"?';
const SINGLE = "'(?:[^'\\\\]|\\\\.?)*'?";
const CHARACTER = "'(?:[^'\\\\]|\\\\[^']{0,10})'";
const NUMBER = "\\b\\d[\\w.]*";
const WORD = "[A-Za-z_]\\w*";
const SLASHES = "\\/\\/.*";
const C_COMMENT = { open: "\\/\\*", close: "*/", kind: "comment" };

/**
 * `long`: what may go on over several lines, by what opens it. `comment`, `string`, `meta`, `number`, `word`: patterns.
 * `keywords`, `literals`, `types`: sets of words. `property`: what follows a word or string that names one.
 * `whole(line)`: the kind of a line that is of one kind.
 */
function language({ long = [], keywords = "", literals = "", types = "", caseless = false, ...patterns }) {
  const kinds = ["comment", "string", "meta", "number", "word"].filter((kind) => patterns[kind]);
  const sources = [...long.map(({ open }) => open), ...kinds.map((kind) => patterns[kind])];
  const sets = { keyword: words(keywords), literal: words(literals), type: words(types) };
  const first = 1 + long.length;

  const kindOfWord = (word, line, end) => {
    const known = caseless ? word.toLowerCase() : word;
    for (const kind in sets) if (sets[kind].has(known)) return kind;
    if (patterns.property && line.startsWith(patterns.property, end)) return "property";
    return line[end] === "(" && !patterns.plain ? "function" : "";
  };
  return {
    pattern: new RegExp(sources.map((source) => `(${source})`).join("|") || "(?!)", "g"),
    whole: patterns.whole,
    opening: (match) => long.find((_, at) => match[1 + at] !== undefined),
    kindOf: (match, line, end) => {
      const kind = kinds.find((_, at) => match[first + at] !== undefined);
      if (kind === "word") return kindOfWord(match[0], line, end);
      return kind === "string" && patterns.property === ":" && line[end] === ":" ? "property" : kind;
    },
  };
}

const C_LIKE = { long: [C_COMMENT], comment: SLASHES, string: `${DOUBLE}|${CHARACTER}`, number: NUMBER, word: WORD };
const C_WORDS = "break case const continue default do else enum extern for goto if inline register return sizeof static struct switch typedef union volatile while";
const C_TYPES = "auto bool char double float int long short signed size_t uint8_t uint32_t uint64_t int8_t int32_t int64_t unsigned void";
const OBJECT_WORDS = "abstract class extends final finally implements import instanceof interface new package private protected public super synchronized this throw throws transient try catch";
const BOOLEANS = "true false null";
const JS_WORDS =
  "as async await break case catch class const continue debugger default delete do else export extends finally for from function get if import in instanceof let new of return set static super switch this throw try typeof var void while with yield " +
  "abstract declare enum implements interface keyof namespace private protected public readonly satisfies type";
const SQL_WORDS =
  "add all alter and as asc begin between by case check column commit constraint create cross database default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not offset on or order outer over partition primary references replace returning right rollback select set table then transaction union unique update using values view when where with";

const LANGUAGES = {
  python: () =>
    language({
      long: [
        { open: '[rbfuRBFU]{0,2}"""', close: '"""', kind: "string", escapes: true },
        { open: "[rbfuRBFU]{0,2}'''", close: "'''", kind: "string", escapes: true },
      ],
      comment: "#.*",
      string: `[rbfuRBFU]{0,2}(?:${DOUBLE}|${SINGLE})`,
      meta: "@[A-Za-z_][\\w.]*",
      number: NUMBER,
      word: WORD,
      keywords:
        "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield",
      literals: "True False None self cls",
      types: "int str float bool bytes list dict set tuple object type range len print",
    }),
  javascript: () =>
    language({
      ...C_LIKE,
      long: [C_COMMENT, { open: "`", close: "`", kind: "string", escapes: true }],
      string: `${DOUBLE}|${SINGLE}`,
      meta: "@[A-Za-z_]\\w*",
      word: "[A-Za-z_$][\\w$]*",
      keywords: JS_WORDS,
      literals: `${BOOLEANS} undefined NaN Infinity`,
      types: "any boolean never number object string symbol unknown bigint Array Map Set Promise Record",
    }),
  json: () =>
    language({ long: [C_COMMENT], comment: SLASHES, string: DOUBLE, number: "-?\\d[\\w.+-]*", word: WORD, literals: BOOLEANS, property: ":" }),
  bash: () =>
    language({
      comment: "(?<![^\\s;])#.*",
      string: `${DOUBLE}|'[^']*'?`,
      meta: "\\$(?:\\w+|\\{[^}]{0,200}\\}?|[@#?*!$-])",
      number: "(?<![\\w.-])\\d+(?![\\w.])",
      word: "-{0,2}[A-Za-z_][\\w-]*",
      plain: true,
      keywords: "case do done elif else esac fi for function if in select then until while return local export readonly declare set unset source exec trap",
      types:
        "alias awk cat cd chmod chown cp curl cut docker echo env eval exit find git grep head jq kill ls make mkdir mv node npm pip printf ps pwd python python3 read rm sed sleep sort sudo tail tar tee test touch tr uniq wc wget which xargs",
    }),
  html: () =>
    language({
      long: [{ open: "<!--", close: "-->", kind: "comment" }],
      string: '="[^"]*"?|=\'[^\']*\'?',
      meta: "<!?\\/?[A-Za-z][\\w:-]*|\\/?>|&#?\\w{1,20};",
      word: "[\\w:@.-]+",
      property: "=",
      plain: true,
    }),
  css: () =>
    language({
      long: [C_COMMENT],
      string: `${DOUBLE}|${SINGLE}`,
      meta: "@[\\w-]+|--[\\w-]+",
      number: "#[0-9a-fA-F]{3,8}\\b|-?\\b\\d[\\w.%]*",
      word: "[A-Za-z_-][\\w-]*",
      property: ":",
      keywords: "important inherit initial none auto",
    }),
  sql: () =>
    language({
      long: [C_COMMENT],
      comment: "--.*",
      string: `'[^']*'?|"[^"]*"?`,
      number: NUMBER,
      word: WORD,
      caseless: true,
      keywords: SQL_WORDS,
      literals: BOOLEANS,
      types: "bigint boolean char date decimal double float int integer json jsonb numeric real serial smallint text time timestamp uuid varchar",
    }),
  yaml: () =>
    language({
      comment: "(?<!\\S)#.*",
      string: `${DOUBLE}|'[^']*'?`,
      meta: "(?<!\\S)[&*!][\\w.-]+|^(?:---|\\.\\.\\.)$",
      number: "(?<![\\w.-])-?\\d[\\d_.]*(?![\\w.-])",
      word: "[A-Za-z_][\\w./-]*",
      property: ":",
      literals: `${BOOLEANS} yes no on off`,
      plain: true,
    }),
  toml: () =>
    language({
      comment: "[#;].*",
      string: `${DOUBLE}|'[^']*'?`,
      meta: "^\\s{0,20}\\[[^\\]]{0,200}\\]?",
      number: "(?<![\\w.-])-?\\d[\\w.:-]*",
      word: "[A-Za-z_][\\w.-]*",
      property: " =",
      literals: BOOLEANS,
      plain: true,
    }),
  go: () =>
    language({
      ...C_LIKE,
      long: [C_COMMENT, { open: "`", close: "`", kind: "string" }],
      keywords: "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var",
      literals: "true false nil iota",
      types: "any bool byte error float32 float64 int int8 int16 int32 int64 rune string uint uint8 uint16 uint32 uint64 uintptr",
    }),
  rust: () =>
    language({
      ...C_LIKE,
      meta: "#!?\\[[^\\]]{0,200}\\]?|'[a-z_]\\w*\\b(?!')|\\b[a-z_]\\w{0,60}!(?!=)",
      keywords:
        "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return static struct super trait type unsafe use where while",
      literals: "true false self Self None Some Ok Err",
      types: "bool char f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize Box HashMap Option Result String Vec",
    }),
  c: () =>
    language({ ...C_LIKE, meta: "^\\s{0,40}#\\s{0,9}\\w+", keywords: C_WORDS, literals: `${BOOLEANS} NULL`, types: C_TYPES }),
  cpp: () =>
    language({
      ...C_LIKE,
      meta: "^\\s{0,40}#\\s{0,9}\\w+",
      keywords: `${C_WORDS} class constexpr delete explicit friend mutable namespace new noexcept operator override private protected public template this throw try catch typename using virtual co_await co_return co_yield`,
      literals: `${BOOLEANS} NULL nullptr`,
      types: `${C_TYPES} string vector map set pair optional unique_ptr shared_ptr`,
    }),
  java: () =>
    language({
      ...C_LIKE,
      meta: "@[A-Za-z_]\\w*",
      keywords: `${C_WORDS} ${OBJECT_WORDS} assert boolean record sealed permits var yield fun val when object override suspend data in is using namespace async await out ref`,
      literals: BOOLEANS,
      types: `${C_TYPES} boolean byte Integer List Map Object Optional Set String decimal string`,
    }),
  diff: () =>
    language({
      whole: (line) => {
        if (/^(?:@@|diff |index |--- |\+\+\+ )/.test(line)) return "meta";
        return { "+": "inserted", "-": "deleted" }[line[0]] ?? "";
      },
    }),
  markdown: () =>
    language({
      string: "`[^`]*`?",
      whole: (line) => {
        if (/^ {0,3}#{1,6}\s/.test(line)) return "keyword";
        if (/^ {0,3}(?:```|~~~|---)/.test(line)) return "meta";
        return /^ {0,3}>/.test(line) ? "comment" : "";
      },
      meta: "^\\s{0,40}(?:[-*+]|\\d{1,9}[.)])(?= )",
    }),
};

const NAMES = {
  ...{ py: "python", python3: "python", pycon: "python", starlark: "python" },
  ...{ js: "javascript", jsx: "javascript", mjs: "javascript", cjs: "javascript", ts: "javascript", tsx: "javascript" },
  ...{ typescript: "javascript", json5: "json", jsonc: "json", jsonl: "json", ndjson: "json" },
  ...{ sh: "bash", shell: "bash", zsh: "bash", console: "bash", "shell-session": "bash", dockerfile: "bash", makefile: "bash" },
  ...{ xml: "html", svg: "html", vue: "html", xhtml: "html", scss: "css", less: "css", yml: "yaml", ini: "toml", conf: "toml" },
  ...{ golang: "go", rs: "rust", h: "c", "c++": "cpp", cc: "cpp", cxx: "cpp", hpp: "cpp" },
  ...{ kotlin: "java", kt: "java", "c#": "java", cs: "java", csharp: "java", scala: "java", patch: "diff", md: "markdown" },
  ...{ postgresql: "sql", postgres: "sql", mysql: "sql", sqlite: "sql" },
};
const made = new Map();

/** The language of this name or one of its short forms; null where it is not known. */
export function languageNamed(name) {
  const known = name.toLowerCase();
  const key = Object.hasOwn(NAMES, known) ? NAMES[known] : known;
  if (!Object.hasOwn(LANGUAGES, key)) return null;
  if (!made.has(key)) made.set(key, LANGUAGES[key]());
  return made.get(key);
}

/** The language of a file, by the end of its name. */
export const languageOfFile = (path) => {
  const name = path.slice(path.lastIndexOf("/") + 1);
  return name.includes(".") ? name.slice(name.lastIndexOf(".") + 1) : name;
};
