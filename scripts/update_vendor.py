"""Takes the page's libraries from npm, as built files: `scripts/update_vendor.py` (needs npm). Users build none.

Versions stand here. A library in UMD form becomes a module with one export, so that the page and an exported file
import it like any other; KaTeX stays a script of its own, which a page with a formula loads.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

VENDOR: Final = Path(__file__).parents[1] / "src/tailrace/server/web/vendor"


class Library(NamedTuple):
    package: str
    version: str
    license: str  # its file in the package
    source: str = ""
    file: str = ""
    export: str = ""  # the name of the module's export; "" for a script
    joined: bool = False  # its lines end anywhere between two words, for their length alone: they are one line here
    left_out: tuple[str, ...] = ()  # languages that are hardly ever asked for: their code has no colours


LIBRARIES: Final = (
    Library(
        *("markdown-it", "15.0.3", "LICENSE", "dist/browser/markdown-it.umd.min.js", "markdown-it.js", "markdownIt")
    ),
    Library("dompurify", "3.4.18", "LICENSE", "dist/purify.min.js", "dompurify.js", "createPurifier"),
    Library(
        *("@highlightjs/cdn-assets", "11.12.0", "LICENSE", "highlight.min.js", "highlight.js", "highlighter"),
        joined=True,
        left_out=("objectivec", "vbnet"),
    ),
    Library("katex", "0.19.1", "LICENSE", "dist/katex.min.js", "katex.js"),
    Library("lucide-static", "1.62.0", "LICENSE"),
)
# Of Lucide, by its own names: those that the page shows.
ICONS: Final = (
    "activity arrow-down arrow-up check chevron-left chevron-right circle-alert coins copy ellipsis file-text "
    "gauge git-fork image info link list menu monitor moon paperclip pause pencil pin pin-off play plus "
    "refresh-cw search share-2 square square-pen sun table terminal timer trash-2 x "
)
WAVE: Final = '<path d="M2 8q3.3-4.4 6.7 0t6.6 0T22 8M2 16q3.3-4.4 6.7 0t6.6 0T22 16"/>'  # the product's own mark


def main() -> None:
    VENDOR.mkdir(exist_ok=True)
    for library in LIBRARIES:
        files = packed(library)
        name = library.package.removeprefix("@").split("/")[0]
        (VENDOR / f"LICENSE-{name}.txt").write_bytes(files[library.license])
        if library.source:
            code = re.sub(r"\n?//# sourceMappingURL=.*", "", files[library.source].decode()).strip()
            code = code.replace("\n", "") if library.joined else code
            for language in library.left_out:
                code = re.sub(rf"grmr_{language}:.*?,(?=grmr_)", "", code, count=1)
            (VENDOR / library.file).write_text(module(library, code), encoding="utf-8")
        else:
            (VENDOR / "icons.svg").write_text(sprite(library, files), encoding="utf-8")
        print(library.package, library.version)
    versions = {library.package: library.version for library in LIBRARIES}
    (VENDOR / "versions.json").write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")


def packed(library: Library) -> Mapping[str, bytes]:
    """The files of the published package, by path."""
    with tempfile.TemporaryDirectory() as directory:
        name = f"{library.package}@{library.version}"
        subprocess.run(["npm", "pack", "--silent", name], cwd=directory, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(directory).glob("*.tgz")
        content = archive.read_bytes()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        members = [(member, tar.extractfile(member)) for member in tar.getmembers()]
        return {member.name.removeprefix("package/"): file.read() for member, file in members if file is not None}


def module(library: Library, code: str) -> str:
    head = f"/*! {library.package} {library.version}: see LICENSE-*.txt */\n"
    if not library.export:
        return f"{head}{code}\n"
    before = "const module = { exports: {} };\nconst exports = module.exports;\n"
    return f"{head}{before}{code}\nconst {library.export} = module.exports;\nexport {{ {library.export} }};\n"


def sprite(library: Library, files: Mapping[str, bytes]) -> str:
    symbols = [symbol(name, drawing(files[f"icons/{name}.svg"].decode())) for name in ICONS.split()]
    head = f"<!-- {library.package} {library.version}: see LICENSE-lucide-static.txt -->"
    return "\n".join(['<svg xmlns="http://www.w3.org/2000/svg">', head, symbol("wave", WAVE), *symbols, "</svg>", ""])


def symbol(name: str, paths: str) -> str:
    return f'<symbol id="{name}" viewBox="0 0 24 24">{paths}</symbol>'


def drawing(icon: str) -> str:
    found = re.search(r"<svg[^>]*>(.*)</svg>", icon, re.DOTALL)
    if found is None:
        raise ValueError(icon)
    return re.sub(r"\s+/>", "/>", re.sub(r"\s*\n\s*", "", found[1]))


if __name__ == "__main__":
    main()
