"""Lines that pytest prints when its tests have ended, such as what was not tried and why.

A conftest.py imports `note` and the hook.
"""

notes = []


def note(text):
    """Has a line printed when the tests have ended."""
    notes.append(text)


def pytest_terminal_summary(terminalreporter):
    if notes:
        terminalreporter.section("NOTES")
        for text in notes:
            terminalreporter.write_line(text)
