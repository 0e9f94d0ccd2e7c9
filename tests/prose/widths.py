"""How many lines a browser needs for each cell of a table: an estimate, which `measure_tables.py` compares with Chromium.

The page is 800 pixels wide and its letters have 16, as on GitHub. All widths are in letters' heights. Columns share that width as
CSS says for tables: each gets its longest word, and then a part of the rest, the more the longer its longest cell is.
"""

import re

from pages import LINK

PAGE = 800 / 16
# Beside the text of a cell, and beside that of a code span.
PADDING = 27 / 16
CODE_PADDING = 0.68
# An average letter of text and its bold, and each letter of code.
LETTER, BOLD, CODE_LETTER = 0.54, 0.61, 0.512
NARROW, NARROW_LETTER = set("iljtfrI.,:;'|!()[] -"), 0.33
# What is taken from each column, so that fewer cells are missed.
CAUTION = 0.96
# Text and code may be broken between words, and behind a hyphen.
PIECE = re.compile(r"[^\s-]*-+(?=\w)|\S+")
SPANS = re.compile(r"(`+)(.+?)\1|([^`]+)")


def words(cell, letter):
    """(width, width of the space in front) of each part of a cell that is never broken."""
    while LINK.search(cell):
        cell = LINK.sub(r"\1", cell)
    cell = cell.replace("**", "").replace("*", "")
    found, space = [], 0.0
    for _, code, text in SPANS.findall(cell):
        part = code or text
        pieces = list(PIECE.finditer(part))
        for at, piece in enumerate(pieces):
            if code:
                width = len(piece[0]) * CODE_LETTER + (CODE_PADDING / 2) * ((at == 0) + (at == len(pieces) - 1))
            else:
                width = sum(NARROW_LETTER if c in NARROW else letter for c in piece[0])
            before = at and pieces[at - 1].end()
            if part[before : piece.start()].strip() == "" and piece.start() > before:
                space = CODE_LETTER if code else NARROW_LETTER
            # What touches the part before it is one word with that.
            glued = found and space == 0 and at == 0
            if glued:
                found[-1] = (found[-1][0] + width, found[-1][1])
            else:
                found.append((width, space))
            space = 0.0
        if not code and part[-1:].isspace():
            space = NARROW_LETTER
    return found


def lines(parts, width):
    """How many lines these words fill."""
    count, filled = 1, 0.0
    for word, space in parts:
        if filled and filled + space + word > width:
            count, filled = count + 1, word
        else:
            filled += (space if filled else 0) + word
    return count


def lines_of(table):
    """Of each row, the lines of each cell."""
    head, *body = table.rows
    rows = [[words(cell, BOLD) for cell in head.cells]] + [[words(cell, LETTER) for cell in row.cells] for row in body]
    columns = len(head.cells)
    rows = [(row + [[]] * columns)[:columns] for row in rows]
    column = [[row[n] for row in rows] for n in range(columns)]
    least = [max(max((word for word, _ in cell), default=0) for cell in cells) for cells in column]
    most = [max(sum(word + space for word, space in cell) for cell in cells) for cells in column]
    room = PAGE - PADDING * columns
    spare = room - sum(least)
    wanted = sum(most) - sum(least)
    if sum(most) <= room:
        width = most
    elif spare <= 0:
        width = least
    else:
        width = [low + (high - low) * spare / wanted for low, high in zip(least, most)]
    return [[lines(cell, space * CAUTION) for cell, space in zip(row, width)] for row in rows]
