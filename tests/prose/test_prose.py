"""Sentences and cells of the pages are short enough to be read at once.

A sentence of README has at most 30 words, one of another page 40. No cell of a table has over three lines where GitHub shows it.
Lists that tests write between two comments are data, and are left out; tables are not.
"""

import unittest

import pages
import widths

README_WORDS, WORDS, LINES = 30, 40, 3


def long_sentences(page, text):
    limit = README_WORDS if page == "README.md" else WORDS
    return [
        f"{page}:{sentence.line}: {sentence.words} words, over {limit}: {sentence.text}"
        for sentence in pages.sentences(text)
        if sentence.words > limit
    ]


def high_cells(page, text):
    return [
        f"{page}:{row.line}: about {count} lines, over {LINES}: {cell}"
        for table in pages.tables(text)
        for row, counts in zip(table.rows, widths.lines_of(table))
        for cell, count in zip(row.cells, counts)
        if count > LINES
    ]


def ragged_rows(page, text):
    return [
        f"{page}:{row.line}: {len(row.cells)} cells, under a head of {len(table.rows[0].cells)}"
        for table in pages.tables(text)
        for row in table.rows
        if len(row.cells) != len(table.rows[0].cells)
    ]


class Pages(unittest.TestCase):
    def complaints(self, check):
        found = [complaint for page, text in pages.pages().items() for complaint in check(page, text)]
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_no_sentence_is_long(self):
        self.complaints(long_sentences)

    def test_no_cell_is_high(self):
        self.complaints(high_cells)

    def test_every_row_has_the_cells_of_its_head(self):
        self.complaints(ragged_rows)

    def test_the_pages_are_found(self):
        found = pages.pages()
        self.assertIn("docs/guides/rollouts.md", found)
        self.assertGreater(len(pages.tables(found["docs/flags.md"])), 5)
        self.assertGreater(len(pages.sentences(found["README.md"])), 50)


class TheCheckItself(unittest.TestCase):
    def words_of(self, text):
        return [(sentence.line, sentence.words) for sentence in pages.sentences(text)]

    def test_a_long_sentence_is_found_wherever_it_stands(self):
        words = " ".join(["word"] * 31)
        for before, line in [("", 1), ("a\n\n", 3), ("- ", 1), ("1. ", 1), ("> ", 1), ("## ", 1), ("| a |\n|---|\n| ", 3)]:
            self.assertEqual(len(long_sentences("README.md", f"{before}{words}.")), 1, before)
            self.assertIn(f"README.md:{line}:", long_sentences("README.md", f"{before}{words}.")[0])
        self.assertEqual(long_sentences("docs/a.md", words), [])
        self.assertEqual(len(long_sentences("docs/a.md", f"{words} {' '.join(['word'] * 10)}")), 1)
        self.assertEqual(long_sentences("README.md", words.replace("word", "word.", 1)), [])

    def test_a_sentence_goes_on_over_lines_and_ends_with_its_paragraph(self):
        self.assertEqual(self.words_of("one two\nthree. tito four\n\nfive"), [(1, 3), (1, 2), (4, 1)])
        self.assertEqual(self.words_of("- one\n  two\n- three\n\n# four\nfive"), [(1, 2), (3, 1), (5, 1), (6, 1)])

    def test_names_and_abbreviations_end_no_sentence(self):
        self.assertEqual(self.words_of("Version 0.33 of a.py, e.g. this one (it is. So)."), [(1, 9), (1, 1)])
        self.assertEqual(self.words_of("`a. b c` and [two words](http://a.b) – all."), [(1, 5)])

    def test_blocks_of_code_and_comments_are_no_text(self):
        self.assertEqual(self.words_of("```sh\none two. three\n```\n<!-- four -->\nfive"), [(5, 1)])
        self.assertEqual(pages.tables("```\n| a |\n|---|\n| b |\n```\n"), [])

    def test_lists_that_tests_write_are_left_out_and_tables_are_not(self):
        text = "one\n\n<!-- native -->\n- a, b\n\n| c |\n|---|\n| d |\n<!-- end of native -->\n\ntwo\n"
        self.assertEqual(self.words_of(text), [(1, 1), (6, 1), (8, 1), (11, 1)])
        self.assertEqual(len(pages.tables(text)), 1)

    def test_bars_in_cells_are_text(self):
        table = pages.tables("| a | `b\\|c` |\n|---|---|\n| | d |\n")[0]
        self.assertEqual([row.cells for row in table.rows], [("a", "`b|c`"), ("", "d")])

    def test_a_high_cell_is_found(self):
        text = "| a | b |\n|---|---|\n| c | {} |\n"
        self.assertEqual(high_cells("a.md", text.format("short words " * 15)), [])
        self.assertEqual(len(high_cells("a.md", text.format("short words " * 40))), 1)
        # The same cell has less room beside others.
        wide = "| a | b | c | d |\n|---|---|---|---|\n" + "| {0} | {0} | {0} | {0} |\n".format("short words " * 10)
        self.assertEqual(len(high_cells("a.md", wide)), 4)
        self.assertIn("a.md:3: about", high_cells("a.md", wide)[0])

    def test_columns_share_the_page_as_in_a_browser(self):
        # Chromium gave these cells so many lines, in the font that `measure_tables.py` names.
        name = "`--continuity-store-secret`"
        text = f"| flag | what it does |\n|---|---|\n| {name} | {'a secret of the servers ' * 9} |\n| {name} {name} {name} | b |\n"
        self.assertEqual(widths.lines_of(pages.tables(text)[0])[1:], [[1, 4], [3, 1]])

    def test_a_row_with_a_cell_too_few_is_found(self):
        self.assertEqual(len(ragged_rows("a.md", "| a | b |\n|---|---|\n| c |\n")), 1)


if __name__ == "__main__":
    unittest.main()
