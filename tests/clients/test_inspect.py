"""The page at /inspect in headless Chromium: what a person sees there, does with a mouse and does with a keyboard only.

Pictures of docs/images are taken by inspect_pictures.py, of answers of the real model.
"""

import json
import os
import pathlib
import random
import statistics
import urllib.request

import pytest
from checkpoints import TOLERANCE
from chromium import browser, page, pytestmark, shot, until  # noqa: F401
from conftest import Server, note
from control import MODEL as TRAINED
from control import Trained, prompt

MODEL = pathlib.Path(os.environ["TITO_TEST_MODEL"])
HOSTILE = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"


@pytest.fixture(scope="module")
def long_model(tmp_path_factory):
    """The model as one of a long context, which the scripted engine does not mind."""
    directory = tmp_path_factory.mktemp("long")
    for file in MODEL.iterdir():
        (directory / file.name).symlink_to(file)
    config = json.loads((MODEL / "config.json").read_text())
    (directory / "config.json").unlink()
    (directory / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 131072}))
    return str(directory)


def encoded(server, text):
    return server.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]


def chat(server, messages, session, tokens=60, seed=1):
    answer = server.post("/v1/chat/completions", messages=messages, max_tokens=tokens, session_id=session, seed=seed)
    return {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}


def noted(server, trajectory, what, body):
    status, text = server.exchange(f"/v1/trajectories/{trajectory}/{what}", body)
    assert status == 200, text


@pytest.fixture(scope="module")
def serving(long_model, tmp_path_factory):
    """A server that has captured a branched conversation with drift, and some short ones."""
    server = Server("--engine", "scripted", "--capture", str(tmp_path_factory.mktemp("capture") / "c.redb"), model=long_model)
    talk = [
        {"role": "system", "content": "You are a patient guide to volcanoes."},
        {"role": "user", "content": "Name a volcano in Iceland."},
    ]
    talk += [chat(server, talk, "volcanoes, rollout 7"), {"role": "user", "content": f"And in Japan? 火山 {HOSTILE}"}]
    talk += [chat(server, talk, "volcanoes, rollout 7"), {"role": "user", "content": "Which of the two is higher?"}]
    for seed in (1, 2):
        chat(server, talk, "volcanoes, rollout 7", 90, seed)
    for number in range(6):
        chat(server, [{"role": "user", "content": f"What is {number} times 7?"}], f"arithmetic {number}", 12 + number)
    listed = json.loads(server.get("/v1/trajectories"))["data"]
    noted(server, listed[0]["id"], "tags", {"add": ["geography", "held out"]})
    noted(server, listed[0]["id"], "reward", {"reward": 0.75})
    noted(server, listed[2]["id"], "tags", {"add": ["math"]})
    server.trajectories = [one["id"] for one in listed]
    yield server
    server.stop()


def last_tokens(server, trajectory):
    tree = json.loads(server.get(f"/v1/trajectories/{trajectory}"))
    turn = tree["turns"][-1]["id"]
    return turn, json.loads(server.get(f"/v1/trajectories/{trajectory}/turns/{turn}/tokens"))


def test_a_list_is_filtered_paged_and_live(serving, page):
    page.goto(f"{serving.url}/inspect")
    rows = page.locator("tbody tr")
    page.wait_for_selector("tbody tr")
    assert rows.count() == len(serving.trajectories)
    assert rows.last.locator("a").inner_text() == "volcanoes, rollout 7"
    page.get_by_label("Tag").fill("math")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('tbody tr').length === 1")
    assert "tag=math" in page.url
    page.get_by_label("Tag").fill("")
    page.get_by_label("Session").fill("nobody's")
    page.keyboard.press("Enter")
    page.get_by_text("No trajectory has all of this.").wait_for()
    page.get_by_label("Session").fill("")
    page.get_by_label("Order").select_option("asc")
    until(page, "document.querySelector('tbody a')?.textContent.startsWith('volcanoes')")
    shot(page, "list")
    # What comes while it is looked at appears by itself.
    page.get_by_label("Order").select_option("desc")
    chat(serving, [{"role": "user", "content": "Are you there?"}], "it came later", 3)
    page.get_by_role("link", name="it came later").wait_for(timeout=300000)


def test_tokens_show_where_they_came_from(serving, page):
    trajectory = serving.trajectories[0]
    turn, tokens = last_tokens(serving, trajectory)
    page.goto(f"{serving.url}/inspect")
    page.get_by_role("link", name="volcanoes, rollout 7").click()
    page.wait_for_selector("#token-0")
    assert page.locator(".tree a").count() == 4
    assert page.locator(".tree ol ol a").count() == 2, "two branches"
    assert page.title() == "tito inspect" and page.locator("main img, main script").count() == 0, "texts are texts"
    for at in (0, tokens["spans"][1]["start"], len(tokens["token_ids"]) - 1):
        page.locator(".tokens").evaluate("(list, at) => { list.scrollTop = at ? list.scrollHeight : 0 }", at > 40)
        page.wait_for_selector(f"#token-{at}")
        page.hover(f"#token-{at}")
        shown = page.locator(".detail").inner_text()
        for part in (str(tokens["token_ids"][at]), json.dumps(tokens["texts"][str(tokens["token_ids"][at])], ensure_ascii=False)):
            assert part in shown, (part, shown)
        if tokens["logprobs"][at] is not None:
            assert f"{tokens['logprobs'][at]:.4f}" in shown and "default" in shown
    classes = {name for span in tokens["spans"] for name in [span["origin"]]}
    assert {"template", "message", "sampled"} <= classes
    page.locator(".tokens").evaluate("list => { list.scrollTop = 0 }")
    page.wait_for_selector("#token-0.o-template")
    shot(page, "trajectory")
    page.get_by_label("Colour by").select_option("logprob")
    page.wait_for_selector(".token.s-2, .token.s-3, .token.s-4")
    page.get_by_label("Colour by").select_option("weights")
    page.wait_for_selector(".token.v-0")
    page.get_by_label("Colour by").select_option("origin")


def test_what_the_client_said_is_shown_as_it_said_it(serving, page):
    trajectory = serving.trajectories[0]
    tree = json.loads(serving.get(f"/v1/trajectories/{trajectory}"))
    second = tree["turns"][1]
    assert second["said"]["items_before"] == 2
    page.goto(f"{serving.url}/inspect#/t/{trajectory}/{second['id']}")
    said = page.locator(".said")
    said.locator("summary").last.click()
    shown = json.loads(said.locator("pre").last.inner_text())
    assert shown == second["said"]["items"][-1] == {"role": "user", "content": f"And in Japan? 火山 {HOSTILE}"}
    assert said.locator("summary").count() == 2 and "After 2 items of the turn before." in said.inner_text()
    assert page.title() == "tito inspect" and page.locator("main img, main script").count() == 0, "texts are texts"
    shot(page, "said")


def test_drift_is_marked_and_shown_side_by_side(serving, page):
    trajectory = serving.trajectories[0]
    for turn in json.loads(serving.get(f"/v1/trajectories/{trajectory}"))["turns"]:
        tokens = json.loads(serving.get(f"/v1/trajectories/{trajectory}/turns/{turn['id']}/tokens"))
        if tokens["drift"]:
            break
    assert tokens["drift"], "a random walk through the vocabulary drifts somewhere"
    drift = tokens["drift"][0]
    page.goto(f"{serving.url}/inspect#/t/{trajectory}/{turn['id']}")
    # The list stays beside whatever is pointed at.
    page.hover("#token-3")
    page.locator(".jump").first.click()
    page.wait_for_selector(f"#token-{drift['start']}.drift.active")
    columns = page.locator(".drift-pair .pair > div")
    ids = [int(text) for text in columns.nth(0).locator("small").all_inner_texts()]
    assert ids == tokens["token_ids"][drift["start"] : drift["end"]]
    assert [int(text) for text in columns.nth(1).locator("small").all_inner_texts()] == drift["token_ids"]
    shot(page, "drift")
    page.emulate_media(color_scheme="dark")
    page.get_by_label("Colour by").select_option("logprob")
    shot(page, "dark")
    backgrounds = [page.evaluate("getComputedStyle(document.body).backgroundColor")]
    page.emulate_media(color_scheme="light")
    backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    dark, light = [sum(map(int, value[4:-1].split(","))) for value in backgrounds]
    assert dark < 150 < 600 < light


def test_everything_is_done_with_the_keyboard(serving, page):
    page.goto(f"{serving.url}/inspect")
    page.wait_for_selector("tbody tr")

    def tab_to(condition, most=80):
        for _ in range(most):
            page.keyboard.press("Tab")
            if page.evaluate(f"(() => {{ const it = document.activeElement; return {condition} }})()"):
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", "focus is seen"
                return
        raise AssertionError(condition)

    tab_to("it.textContent === 'volcanoes, rollout 7'")
    page.keyboard.press("Enter")
    page.wait_for_selector("#token-0")
    tab_to("it.matches('.tokens')")
    active = "document.querySelector('.tokens').getAttribute('aria-activedescendant')"
    assert page.evaluate(active) == "token-0"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(active) == "token-2"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Control+End")
    turn, tokens = last_tokens(serving, serving.trajectories[0])
    assert page.evaluate(active) == f"token-{len(tokens['token_ids']) - 1}"
    assert page.locator(".token.active").count() == 1
    page.keyboard.press("Control+Home")
    page.keyboard.press("t")
    second = next(span["start"] for span in tokens["spans"] if span["turn_id"] != tokens["spans"][0]["turn_id"])
    assert page.evaluate(active) == f"token-{second}"
    page.keyboard.press("PageDown")
    page.keyboard.press("ArrowUp")
    # Back to the tree, to the turn above, and its tokens.
    page.locator('.tree [aria-current="true"]').focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    until(page, "location.hash.split('/').length === 4")
    until(page, "document.activeElement.getAttribute('aria-current') === 'true'")
    tab_to("it.name === 'tag'")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    page.get_by_label("Remove the tag by keyboard").wait_for()
    tree = json.loads(serving.get(f"/v1/trajectories/{serving.trajectories[0]}"))
    assert "by keyboard" in tree["tags"]
    page.get_by_label("Remove the tag by keyboard").focus()
    page.keyboard.press("Enter")
    until(page, "!document.body.textContent.includes('by keyboard')")
    page.get_by_label("Reward").fill("0.5")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.side').textContent.includes('Reward0.5')")
    noted(serving, serving.trajectories[0], "reward", {"reward": 0.75})


def test_what_is_copied_and_downloaded_is_what_was_captured(serving, page):
    page.goto(f"{serving.url}/inspect#/t/{serving.trajectories[0]}")
    page.wait_for_selector("#token-0")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSONL").click()
    lines = pathlib.Path(download.value.path()).read_text().splitlines()
    assert {json.loads(line)["trajectory_id"] for line in lines} == {serving.trajectories[0]} and len(lines) == 2
    page.get_by_role("button", name="Copy the request").click()
    page.get_by_text("copied").wait_for()
    command = page.evaluate("navigator.clipboard.readText()")
    body = json.loads(command.split(" -d '", 1)[1].removesuffix("'").replace("'\\''", "'"))
    _, tokens = last_tokens(serving, serving.trajectories[0])
    answer = serving.post("/v1/chat/completions", **body)
    prompt, sampled = answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
    assert prompt + sampled == tokens["token_ids"], "the same request gives the same ids"


def test_what_would_happen_is_shown_with_its_proof_or_its_refusal(serving, page):
    page.goto(f"{serving.url}/inspect#/prompt")
    page.get_by_role("button", name="Show the prompt").click()
    page.wait_for_selector(".result .token")
    tree = json.loads(serving.get(f"/v1/trajectories/{serving.trajectories[0]}"))
    first = tree["turns"][0]
    carried = {"role": "assistant", "content": "whatever", "prompt_token_ids": first["added_token_ids"],
               "generation_token_ids": first["sampled_token_ids"], "generation_log_probs": first["logprobs"]}
    messages = [*first["messages"], carried, {"role": "user", "content": "And then?"}]
    page.get_by_label("Messages, or the body").fill(json.dumps(messages, indent=1))
    page.keyboard.press("Control+Enter")
    page.get_by_text("anchored tail").wait_for()
    known = len(first["added_token_ids"]) + len(first["sampled_token_ids"])
    assert f"{known} ids, by message" in page.locator(".result").inner_text()
    assert page.locator(".result .line .o-reused").count() > 5
    page.locator(".result .tokens").focus()
    assert "position 0" in page.locator(".chosen").inner_text()
    shot(page, "prompt")
    page.get_by_label("Messages, or the body").fill('[{"role": "user"')
    page.keyboard.press("Control+Enter")
    page.get_by_text("This is not JSON").wait_for()
    page.get_by_label("Messages, or the body").fill(json.dumps([*first["messages"], {**carried, "generation_token_ids": [999999]}]))
    page.keyboard.press("Control+Enter")
    page.get_by_text("The server refuses this conversation").wait_for()
    assert "token id 999999 is out of vocabulary" in page.locator(".refused").inner_text()
    # Chromium logs every answer of 400.
    page.complaints[:] = [text for text in page.complaints if "status of 400" not in text]


def test_a_hundred_thousand_tokens_are_shown_at_once_and_scroll(serving, page):
    words = random.Random(3)
    known = [word for word in "the of and to in is was for on that with as it at by he from his an were are which this also be".split()]
    text = " ".join(words.choice(known) if words.random() < 0.97 else "\n" for _ in range(101_000))
    chat(serving, [{"role": "user", "content": text}], "long", 500)
    trajectory = json.loads(serving.get("/v1/trajectories?session=long"))["data"][0]["id"]
    turn, tokens = last_tokens(serving, trajectory)
    assert len(tokens["token_ids"]) > 100_000
    page.goto(f"{serving.url}/inspect#/t/{trajectory}/{turn}")
    until(page, "performance.getEntriesByName('tokens shown').length")
    shown = page.evaluate("performance.getEntriesByName('tokens shown')[0].startTime")
    elements = page.locator(".tokens .token").count()
    assert elements < 3000, "only the lines that are seen are there"
    frames = page.evaluate(
        """async () => {
            const list = document.querySelector(".tokens"), deltas = [];
            let before = await new Promise(requestAnimationFrame);
            for (let frame = 0; frame < 180; frame += 1) {
                list.scrollTop += 160;
                const now = await new Promise(requestAnimationFrame);
                deltas.push(now - before);
                before = now;
            }
            return deltas;
        }"""
    )
    median, worst = statistics.median(frames), sorted(frames)[int(len(frames) * 0.95)]
    note(f"INSPECT: {len(tokens['token_ids'])} tokens shown after {shown:.0f} ms, frames while scrolling: median {median:.1f} ms, "
         f"95 % within {worst:.1f} ms, {elements} elements")
    # How long it takes depends on the machine: what makes it short is that as few elements are there wherever the list is.
    assert page.evaluate("document.querySelector('.tokens').scrollTop") == 180 * 160
    assert 0 < page.locator(".tokens .token").count() < 3000
    page.locator(".tokens").focus()
    page.keyboard.press("Control+End")
    page.wait_for_selector(f"#token-{len(tokens['token_ids']) - 1}.active")


def test_nothing_inline_runs_and_nothing_elsewhere_is_asked(serving, page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{serving.url}/inspect")
    page.wait_for_selector("tbody tr")
    assert all(url.startswith(serving.url) for url in asked), asked
    blocked = page.evaluate(
        """() => new Promise(resolve => {
            document.addEventListener("securitypolicyviolation", event => resolve(event.effectiveDirective), { once: true });
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
        })"""
    )
    assert blocked.startswith("script-src") and page.evaluate("window.ran") is None
    page.complaints[:] = [text for text in page.complaints if "Content Security Policy" not in text]
    assert page.complaints == []


def test_keys_are_asked_for_and_each_sees_its_own(long_model, page):
    flags = ["--engine", "scripted", "--capture", "memory", "--api-key", "one", "two", "--root-path", "/behind/it"]
    server = Server(*flags, model=long_model)
    try:
        body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "session_id": "hers"}).encode()
        headers = {"Content-Type": "application/json", "Authorization": "Bearer one"}
        urllib.request.urlopen(urllib.request.Request(f"{server.url}/v1/chat/completions", body, headers), timeout=300).read()
        page.goto(f"{server.url}/behind/it/inspect")
        page.get_by_label("API key").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("The server does not know that key.").wait_for()
        page.get_by_label("API key").fill("one")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="hers").click()
        page.wait_for_selector("#token-0")
        assert page.evaluate("[localStorage.length, document.cookie, Object.values(sessionStorage)]") == [0, "", ["one"]]
        page.evaluate("sessionStorage.setItem('tito inspect key', 'two')")
        page.goto(f"{server.url}/behind/it/inspect#/")
        page.get_by_text("Nothing has been captured yet.").wait_for()
        page.complaints[:] = [text for text in page.complaints if "status of 401" not in text]
    finally:
        server.stop()


def test_a_turn_is_computed_again_and_shown_position_by_position(page, tmp_path):
    """By an engine that computes: with the weights that sampled, with others, and where it cannot be done."""
    trained = Trained(tmp_path, "--capture", "memory", "--enable-lora")
    server, asked = trained.server, {"session_id": "again", "seed": 4, "max_tokens": 24}
    adapter = trained.checkpoints.write_adapter("policy", 5)
    server.exchange("/v1/load_lora_adapter", {"lora_name": "policy", "lora_path": str(adapter)})
    trained.complete(prompt(1), model=TRAINED, **asked)
    trained.complete(prompt(2), model="policy", **asked)
    server.exchange("/v1/unload_lora_adapter", {"lora_name": "policy"})
    [trajectory] = json.loads(server.get("/v1/trajectories"))["data"]
    path = f"/v1/trajectories/{trajectory['id']}"

    def turns():
        return json.loads(server.get(path))["turns"]

    server.poll("the checksum of the weights is kept", lambda: turns()[0]["weights"][0]["checksum"] is not None)
    first, adapted = turns()
    start, end = first["prompt_tokens"], first["prompt_tokens"] + 24
    said = page.locator(".verdict")

    def begun(name):
        page.get_by_role("button", name=name, exact=True).click()
        page.wait_for_selector(".verdict .whole")

    def classes(which):
        return page.locator(f".tokens .token.{which}").count()

    page.goto(f"{server.url}/inspect#/t/{trajectory['id']}/{first['id']}")
    page.wait_for_selector("#token-0")
    for name in ("Replay", "Score again"):
        begun(name)
        assert "Equal to the bit" in said.inner_text()
        assert page.get_by_label("Colour by").input_value() == "check"
        assert (classes("c-equal"), classes("none")) == (24, start)
        page.hover(f"#token-{start}")
        assert "equal to the bit" in page.locator(".detail").inner_text()
    # Nothing of that is captured.
    assert len(turns()) == 2
    shot(page, "replayed")

    directory = trained.checkpoints.write("one", 1)
    server.post("/start_weight_update")
    server.post("/update_weights", update_info={"path": str(directory)})
    server.post("/finish_weight_update", weight_version="one")
    server.poll("the checksum of the new weights is kept", lambda: "not known now" not in replayed(server, path, first))
    begun("Replay")
    told = json.loads(replayed(server, path, first))
    assert "Differs" in said.inner_text() and "the checksum of the weights: " in said.inner_text()
    shot(page, "replayed-by-others")
    for span in told["spans"]:
        page.wait_for_selector(f"#token-{span['start']}.c-{span['verdict'].replace('_', '-')}")
    [jump] = [span for span in told["spans"] if span["verdict"] == "token_id"]
    page.locator(".verdict .jump").last.click()
    page.wait_for_selector(f"#token-{jump['start']}.active")
    assert f"Id now{told['token_ids'][jump['start'] - start]}" in page.locator(".detail").inner_text().replace("\n", "")
    begun("Score again")
    assert "one" in said.inner_text() and "nats" in said.inner_text()
    scored = json.loads(server.exchange(f"{path}/turns/{first['id']}/rescore", {})[1])
    page.hover(f"#token-{end - 1}")
    difference = scored["logprobs"][-1] - first["logprobs"][-1]
    shown = page.locator(".detail dt:text-is('Differs by') + dd").inner_text()
    assert abs(float(shown.removesuffix(" nats")) - difference) <= 1e-2 * abs(difference)
    expected = trained.checkpoints.log_probs("one", first["added_token_ids"], first["sampled_token_ids"])
    assert max(abs(now - wanted) for now, wanted in zip(scored["logprobs"], expected, strict=True)) <= TOLERANCE
    shot(page, "scored")

    page.goto(f"{server.url}/inspect#/t/{trajectory['id']}/{adapted['id']}")
    page.locator(f'.tree [aria-current="true"][href$="{adapted["id"]}"]').wait_for()
    for name, cannot in (("Replay", "Cannot be replayed"), ("Score again", "Cannot be scored again")):
        begun(name)
        until(page, f"document.querySelector('.verdict').textContent.includes('{cannot}')")
        assert "adapter" in said.inner_text() and "loaded" in said.inner_text()
    shot(page, "not-repeatable")
    trained.stop()


def replayed(server, path, turn):
    status, text = server.exchange(f"{path}/turns/{turn['id']}/replay", {})
    assert status == 200, text
    return text
