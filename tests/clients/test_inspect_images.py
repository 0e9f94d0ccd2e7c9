"""The images of captured prompts on the page at /inspect: the file at its run of placeholders, or why it is not there."""

import json

import pytest
from chromium import browser, page, pytestmark, shot, until  # noqa: F401
from test_captured_images import NAME, converse, model, serve, tree_of  # noqa: F401


@pytest.fixture(params=["true", "false"])
def captured(model, tmp_path, request):  # noqa: F811
    """A server that has captured a conversation with images, and whether it kept their files."""
    case, directory = model
    server = serve(directory, "--capture", str(tmp_path / "turns.redb"), "--capture-images", request.param)
    converse(server, case["conversations"][NAME])
    yield server, request.param == "true"
    server.stop()


def test_a_placeholder_shows_its_image_or_says_that_its_file_was_not_kept(captured, page):  # noqa: F811
    server, kept = captured
    tree = tree_of(server)
    turn = tree["turns"][-1]
    images = turn["images"]
    assert len(images) > 1
    page.goto(f"{server.url}/inspect#/t/{tree['id']}/{turn['id']}")
    page.wait_for_selector("#token-0")
    first = images[0]
    head = page.get_by_text(f"Image, {first['length']} placeholder")
    assert head.first.is_visible()
    page.hover(f"#token-{first['offset']}")
    about = page.get_by_role("region", name="Image")
    assert first["identity"] in about.inner_text()
    if kept:
        until(page, "document.querySelector('.picture img')?.naturalWidth > 0")
    else:
        assert "--capture-images false" in about.inner_text() and page.locator(".picture img").count() == 0
    shot(page, f"image, {'kept' if kept else 'not kept'}")
    # Words beside it have none.
    page.hover("#token-0")
    assert about.count() == 0
