"""Takes the pictures of docs/images again: the page at /inspect with conversations of the real model.

    TITO_BIN=target/release/tito TITO_TEST_MODEL=MODEL python tests/clients/inspect_pictures.py [FOLDER]

MODEL is SmolLM2-135M-Instruct as scripts/test makes it, and Python has what requirements.txt lists; Debian's package
`chromium` is needed too. What the model answers depends on the processor: look at the pictures before they are committed.
"""

import base64
import json
import os
import pathlib
import re
import shutil
import struct
import sys
import urllib.parse
import urllib.request
import zlib

from conftest import REPOSITORY, Server
from playwright.sync_api import sync_playwright

# So high that the left column ends below its last form, and no line of tokens is cut.
SIZE = {"width": 1280, "height": 760}
TALK = "volcanoes, rollout 7"
SYSTEM = "You are a patient guide to volcanoes. Answer in one or two sentences."
# What is asked, and a word that a good answer has.
ICELAND = ("Name a volcano in Iceland, and say what its name means.", "Iceland")
JAPAN = ("And one in Japan? 🌋", "Fuji")
HIGHER = "Which of the two is higher?"
ANSWER_TOKENS = 60
MOST_SEEDS = 200
# Session, questions, ids at most, reward, tags.
OTHERS = [
    ("lakes, rollout 0", ["What is a lake?"], 60, 0.25, ["geography"]),
    ("lakes, rollout 1", ["What is a lake?"], 60, 0.5, ["geography"]),
    ("a poem of the sea", ["Write a poem about the sea."], 80, None, ["poetry", "held out"]),
    ("french, rollout 0", ["How do I say good morning in French?", "And good night?"], 60, 0.5, ["language"]),
    ("french, rollout 1", ["How do I say good morning in French?", "And good night?"], 60, 1, ["language"]),
    ("arithmetic, rollout 0", ["What is 6 times 7?"], 30, 0, ["math"]),
    ("arithmetic, rollout 1", ["What is 6 times 7?"], 30, 1, ["math"]),
]


def message(role, content):
    return {"role": role, "content": content}


def ask(server, session, messages, tokens, seed, **more):
    """The text of the answer, and whether it ended by itself. Entropies are kept because alternatives are asked for."""
    sampling = {"max_tokens": tokens, "seed": seed, "temperature": 0.8, "top_p": 0.95, "logprobs": True, "top_logprobs": 5}
    answer = server.post("/v1/chat/completions", messages=messages, session_id=session, **sampling, **more)
    choice = answer["choices"][0]
    return choice["message"]["content"], choice["finish_reason"] == "stop"


def newest(server, session):
    """The trajectory of a session, its last turn, and the tokens of that."""
    listed = json.loads(server.get(f"/v1/trajectories?session={urllib.parse.quote(session)}"))
    trajectory = listed["data"][0]["id"]
    turn = json.loads(server.get(f"/v1/trajectories/{trajectory}"))["turns"][-1]["id"]
    return trajectory, turn, json.loads(server.get(f"/v1/trajectories/{trajectory}/turns/{turn}/tokens"))


def note(server, trajectory, what, **body):
    status, text = server.exchange(f"/v1/trajectories/{trajectory}/{what}", body)
    assert status == 200, text


def forget(server, trajectory):
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/v1/trajectories/{trajectory}", method="DELETE")).close()


def found(server, messages, word, drifts=0, **more):
    """The first seed with a whole answer that has the word and so many drifts, and the answer."""
    for seed in range(MOST_SEEDS):
        text, is_whole = ask(server, "tried", messages, ANSWER_TOKENS, seed, **more)
        trajectory, _, tokens = newest(server, "tried")
        forget(server, trajectory)
        # Cut up, a name that has this would look like swearing.
        is_clean = "fuk" not in text.lower()
        if is_whole and is_clean and word in text and len(tokens["drift"]) == drifts:
            return seed, message("assistant", text)
    raise AssertionError(f"none of {MOST_SEEDS} answers to {messages[-1]['content']!r} is good to look at")


def converse(server):
    """Conversations, and last the one that is shown: two turns, and two branches behind them of which the second drifts."""
    for seed, (session, questions, tokens, reward, tags) in enumerate(OTHERS):
        messages = []
        for question in questions:
            messages.append(message("user", question))
            messages.append(message("assistant", ask(server, session, messages, tokens, seed)[0]))
        trajectory, _, _ = newest(server, session)
        note(server, trajectory, "tags", add=tags)
        if reward is not None:
            note(server, trajectory, "reward", reward=reward)
    messages, turns = [message("system", SYSTEM)], []
    for question, word in (ICELAND, JAPAN):
        messages = [*messages, message("user", question)]
        seed, answer = found(server, messages, word)
        turns.append((messages, seed, {}))
        messages = [*messages, answer]
    messages = [*messages, message("user", HIGHER)]
    turns.append((messages, found(server, messages, JAPAN[1])[0], {}))
    # Few answers drift. Where the id that a name begins with is not to be had, the model makes up others, of odd pieces.
    begins_with = server.post("/tokenize", prompt=f" {JAPAN[1]}", add_special_tokens=False)["tokens"][0]
    made_up = {"logit_bias": {str(begins_with): -100}}
    turns.append((messages, found(server, messages, "Mount", drifts=1, **made_up)[0], made_up))
    # On one processor the same seed gives the same answer, now in the session.
    for messages, seed, more in turns:
        ask(server, TALK, messages, ANSWER_TOKENS, seed, **more)
    trajectory, turn, tokens = newest(server, TALK)
    note(server, trajectory, "tags", add=["geography", "held out"])
    note(server, trajectory, "reward", reward=0.75)
    note(server, trajectory, "reward", reward=1, turn_id=turn)
    return trajectory, turn, tokens


def smaller(browser, picture):
    """The picture as a PNG whose lines are not filtered, which takes a fifth less where most is one ground."""
    page = browser.new_page()
    pixels = page.evaluate(
        """async (picture) => {
            const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${picture}`)).blob());
            const drawn = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
            drawn.drawImage(bitmap, 0, 0);
            const pixels = drawn.getImageData(0, 0, bitmap.width, bitmap.height).data;
            let text = "";
            for (let at = 0; at < pixels.length; at += 4) text += String.fromCharCode(...pixels.subarray(at, at + 3));
            return btoa(text);
        }""",
        base64.b64encode(picture).decode(),
    )
    page.close()
    pixels, line = base64.b64decode(pixels), 3 * SIZE["width"]
    lines = b"".join(b"\0" + pixels[at : at + line] for at in range(0, len(pixels), line))

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", SIZE["width"], SIZE["height"], 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def shoot(server, browser, folder):
    trajectory, turn, tokens = converse(server)
    page = browser.new_context(viewport=SIZE, color_scheme="light").new_page()
    # The page is that of the tree, also where the binary was made before it changed.
    files = REPOSITORY / "src" / "api" / "inspect" / "page"
    page.route(re.compile(r"/inspect/\w+\.(js|css)$"), lambda route: route.fulfill(path=files / route.request.url.split("/")[-1]))

    def shot(name):
        page.wait_for_timeout(300)
        (folder / f"{name}.png").write_bytes(smaller(browser, page.screenshot()))

    page.goto(f"{server.url}/inspect")
    page.wait_for_selector("tbody tr")
    shot("list")
    page.goto(f"{server.url}/inspect#/t/{trajectory}/{turn}")
    page.wait_for_selector("#token-0")
    # The least expected token of the first answer: its rank says more than a 1.
    first = next(span for span in tokens["spans"] if span["origin"] == "sampled")
    page.hover(f"#token-{max(range(first['start'], first['end']), key=lambda at: tokens['ranks'][at])}")
    shot("trajectory")
    page.locator(".jump").first.click()
    page.wait_for_selector(".drift-pair")
    shot("drift")
    page.emulate_media(color_scheme="dark")
    page.get_by_label("Colour by").select_option("logprob")
    shot("dark")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "docs" / "images"
    server = Server("--capture", "memory")
    try:
        with sync_playwright() as playwright:
            # Root has no sandbox of its own.
            arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
            shoot(server, browser, folder)
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
