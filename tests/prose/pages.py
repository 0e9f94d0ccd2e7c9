"""The pages that people read, taken apart: the sentences of their text, and the cells of their tables.

Blocks of code and the addresses of links are no text. A code span is one word: it is read as one name.
"""

import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]

FENCE = re.compile(r"^\s*(```|~~~)")
COMMENT = re.compile(r"<!--.*?-->")
# Between two comments, tests write what they found. Lists there are data, and not for reading from end to end.
FOUND = re.compile(r"^<!-- (?:doors|effects|formats|gguf|measured|native|templates) -->$")
END_OF_FOUND = re.compile(r"^<!-- end\b.* -->$")
# What stands in front of the text of a heading, a quote or an item of a list.
LEAD = re.compile(r"^\s*(?:#+\s+|>\s*|[-*+]\s+|\d+[.)]\s+)")
RULE = re.compile(r"^\s*\|(?:\s*:?-+:?\s*\|)+\s*$")
CODE = re.compile(r"(`+)(.+?)\1")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^()\s]*\)")
# A full stop, with what closes a quote or brackets behind it, ends a sentence, except behind these words. The next sentence may
# begin with a small letter, because names do.
END = re.compile(r"(?<=[.!?])[\"”’)*_]*\s+")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|cf|vs)\.$")


@dataclass(frozen=True)
class Sentence:
    line: int
    text: str

    @property
    def words(self):
        return sum(any(map(str.isalnum, word)) for word in self.text.split())


@dataclass(frozen=True)
class Row:
    line: int
    cells: tuple


@dataclass(frozen=True)
class Table:
    rows: tuple


def pages():
    """Every page of the repository that this check is about, by its path there."""
    found = [ROOT / name for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]] + sorted((ROOT / "docs").rglob("*.md"))
    return {str(page.relative_to(ROOT)): page.read_text() for page in found}


def plain(text):
    """Without marks, and without the addresses of links; a code span is one word."""
    text = CODE.sub(lambda code: "`" + re.sub(r"\s", "_", code[2]) + "`", text)
    while LINK.search(text):
        text = LINK.sub(r"\1", text)
    return " ".join(text.split())


def split(line, text):
    """The sentences of a text without breaks."""
    # Nothing in a code span ends a sentence.
    spans = []
    hidden = CODE.sub(lambda code: spans.append(code[0]) or f"`{len(spans) - 1}`", plain(text))
    sentences, begun = [], ""
    for part in END.split(hidden):
        begun = f"{begun} {part}".strip()
        if not ABBREVIATION.search(begun):
            sentences.append(begun)
            begun = ""
    whole = [re.sub(r"`(\d+)`", lambda span: spans[int(span[1])], sentence) for sentence in [*sentences, begun] if sentence]
    return [Sentence(line, sentence) for sentence in whole]


def cells(line):
    """The cells of a row; in a cell, a bar is written with a backslash."""
    return tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))


def blocks(text):
    """(line, text) of each paragraph, heading and item, and each `Table`, in their order; not of lists that tests write."""
    found, paragraph, rows, fenced, data = [], [], [], False, False

    def end():
        if paragraph:
            found.append((paragraph[0][0], " ".join(words for _, words in paragraph)))
            paragraph.clear()
        if rows:
            found.append(Table(tuple(rows)))
            rows.clear()

    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence or fenced:
            end()
            fenced ^= fence is not None
            continue
        data = (data or FOUND.match(line) is not None) and not END_OF_FOUND.match(line)
        line = COMMENT.sub("", line)
        if data and not line.lstrip().startswith("|"):
            line = ""
        if line.lstrip().startswith("|"):
            if paragraph:
                end()
            if not RULE.match(line):
                rows.append(Row(number, cells(line)))
            continue
        if not line.strip() or LEAD.match(line) or rows:
            end()
        if line.strip():
            paragraph.append((number, LEAD.sub("", line).strip()))
            if line.startswith("#"):
                end()
    end()
    return found


def tables(text):
    return [block for block in blocks(text) if isinstance(block, Table)]


def sentences(text):
    """Of paragraphs, headings, items and cells."""
    found = []
    for block in blocks(text):
        if isinstance(block, Table):
            for row in block.rows:
                for cell in row.cells:
                    found += split(row.line, cell)
        else:
            found += split(*block)
    return found
