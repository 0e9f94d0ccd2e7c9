"""The snippets of docs/token-continuity.md do what the page says."""

import re

import pytest
from conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "token-continuity.md").read_text()
FRAMEWORKS = re.search(r"^## By framework\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)[1]
SNIPPETS = re.findall(r"^### (.*?)\n(?:(?!^### ).)*?```python\n(.*?)```", FRAMEWORKS, re.MULTILINE | re.DOTALL)


def test_every_framework_has_a_snippet():
    headings = re.findall(r"^### (.*)$", FRAMEWORKS, re.MULTILINE)
    assert [heading for heading, _ in SNIPPETS] == headings


@pytest.mark.parametrize("snippet", [snippet for _, snippet in SNIPPETS], ids=[heading for heading, _ in SNIPPETS])
def test_a_snippet_runs(server, snippet):
    exec(compile(snippet.replace("http://localhost:8000", server.url), "docs/token-continuity.md", "exec"), {})
