"""Compares `widths.py` with Chromium, cell by cell. Not a test: for whoever changes the estimate, or doubts it.

Run it by hand with the Python that scripts/docs.txt is installed for: python tests/prose/measure_tables.py. The style is that of a
page on GitHub, 800 pixels wide. Letters are DejaVu Sans at nine tenths, which are as wide as those of GitHub's fonts.
"""

import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import markdown

import pages
import widths

LIMIT = 3
PAGE = """<!doctype html><meta charset=utf-8><style>
@font-face { font-family: letters; src: local("DejaVu Sans"); size-adjust: 90% }
body { margin: 0; width: 800px; font: 16px/1.5 letters; overflow-wrap: break-word }
table { display: block; width: max-content; max-width: 100%; overflow: auto; border-collapse: collapse }
td, th { padding: 6px 13px; border: 1px solid }
code { padding: .2em .4em; font: 85% "DejaVu Sans Mono"; white-space: break-spaces }
</style><body>BODY<script>
const counts = [...document.querySelectorAll("table")].map(table => [...table.rows].map(row => [...row.cells].map(cell => {
    const range = document.createRange(), height = parseFloat(getComputedStyle(cell).lineHeight), middles = [];
    range.selectNodeContents(cell);
    for (const box of range.getClientRects()) {
        const middle = (box.top + box.bottom) / 2;
        if (box.width >= 1 && !middles.some(other => Math.abs(other - middle) < height * 0.6)) middles.push(middle);
    }
    return middles.length;
})));
const said = document.createElement("pre");
said.textContent = JSON.stringify(counts);
document.body.replaceChildren(said);
</script>"""


def measured(text):
    """Of each table of a page, of each row, the lines of each cell."""
    body = markdown.markdown(text, extensions=["tables", "pymdownx.superfences"])
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder, "page.html")
        page.write_text(PAGE.replace("BODY", body))
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom", str(page)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", shown, re.DOTALL)[1]))


def main(paths):
    found = {path: pathlib.Path(path).read_text() for path in paths} or pages.pages()
    both, only_shown, only_estimated, neither = 0, [], [], 0
    for name, text in found.items():
        tables = pages.tables(text)
        shown = measured(text) if tables else []
        assert [len(table.rows) for table in tables] == [len(table) for table in shown], name
        for table, counts in zip(tables, shown):
            for row, real, estimate in zip(table.rows, counts, widths.lines_of(table)):
                for lines, guess in zip(real, estimate):
                    place = f"{name}:{row.line}: {lines} lines, estimated {guess}"
                    if lines > LIMIT and guess > LIMIT:
                        both += 1
                    elif lines > LIMIT:
                        only_shown.append(place)
                    elif guess > LIMIT:
                        only_estimated.append(place)
                    else:
                        neither += 1
    print("\n".join([*only_shown, *only_estimated]))
    print(f"over {LIMIT} lines: {both} in both, {len(only_shown)} only in Chromium, {len(only_estimated)} only in the estimate; {neither} others")


if __name__ == "__main__":
    main(sys.argv[1:])
