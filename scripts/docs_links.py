"""A hook of mkdocs: links between docs/ and the rest of the repository.

On GitHub, a page of docs/ may link to any file of the repository. The site has only docs/. So a link that leaves docs/ becomes
its text, or a link to the repository where mkdocs.yml names one (`repo_url`). Either way its target is looked for, and so are
the targets of pages outside of docs/: a link that leads nowhere is a warning, which fails `mkdocs build --strict`.
"""

import logging
import pathlib
import posixpath
import re

from pymdownx.slugs import slugify

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Pages that people read on GitHub only.
OUTSIDE = ["*.md", "benches/*.md", "crates/*/*.md", "examples/**/*.md", "tests/*/*.md"]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^ *(```|~~~)")
log = logging.getLogger("mkdocs.hooks.docs_links")
slug = slugify(case="lower")


def parts(text):
    """Runs of lines, each with whether it is text and no code; joined by line ends, they are the whole."""
    runs, fenced = [], False
    for line in text.split("\n"):
        fence = FENCE.match(line) is not None
        is_text = not fence and not fenced
        fenced ^= fence
        if runs and runs[-1][1] == is_text:
            runs[-1] = (f"{runs[-1][0]}\n{line}", is_text)
        else:
            runs.append((line, is_text))
    return runs


def anchors(page):
    """The anchors of a page, as GitHub makes them of its headings."""
    text = "\n".join(run for run, is_text in parts(page.read_text()) if is_text)
    headings = re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE)
    found = []
    for heading in headings:
        anchor = slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", ""), "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found


def complaint(folder, link):
    """What is wrong with a link from a page in this folder of the repository, or None."""
    path, _, anchor = link.partition("#")
    target = (ROOT / folder / path).resolve()
    if not target.is_relative_to(ROOT) or not target.exists():
        return "which is not there"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return "which has no such heading"
    return None


def is_of_the_repository(link):
    return not re.match(r"[a-z]+:|#", link)


def on_pre_build(config):
    for page in sorted(page for pattern in OUTSIDE for page in ROOT.glob(pattern)):
        for run, is_text in parts(page.read_text()):
            for _, _, link in LINK.findall(run) if is_text else []:
                wrong = complaint(page.parent.relative_to(ROOT), link) if is_of_the_repository(link) else None
                if wrong:
                    log.warning("%s links to %s, %s", page.relative_to(ROOT), link, wrong)


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def replaced(match):
        image, text, link = match.groups()
        inside = posixpath.normpath(posixpath.join(folder, link.partition("#")[0])).startswith("docs/")
        if image or inside or not is_of_the_repository(link):
            return match[0]
        wrong = complaint(folder, link)
        if wrong:
            log.warning("docs/%s links to %s, %s", page.file.src_uri, link, wrong)
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{posixpath.normpath(posixpath.join(folder, link))})"
        return text

    return "\n".join(LINK.sub(replaced, run) if is_text else run for run, is_text in parts(markdown))
