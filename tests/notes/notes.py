"""What all of pytest's suites here say and heed: lines when the tests have ended, such as what was not tried and why; a failure at
once, since a run that is ended from outside never comes to its summary; and the end of the run's time.

A conftest.py imports `note` and the hooks.
"""

import os
import time

import pytest

notes = []
terminal = None
# The second after which no test is begun, where scripts/test says so.
UNTIL = float(os.environ.get("TITO_TEST_UNTIL") or "inf")


def note(text):
    """Has a line printed when the tests have ended."""
    notes.append(text)


def pytest_terminal_summary(terminalreporter):
    if notes:
        terminalreporter.section("NOTES")
        for text in notes:
            terminalreporter.write_line(text)


# Before fixtures are set up, which start servers.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    if time.time() >= UNTIL:
        pytest.skip("the run is late")


def pytest_runtest_logreport(report):
    if report.failed and terminal is not None:
        terminal.write_line(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}")


def pytest_sessionstart(session):
    global terminal  # noqa: PLW0603 (the hook above is not told)
    # A process that only runs tests for another one has none.
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
