"""Claude Code's and Codex's own requests, recorded from their programs: over their turns with results of tools, each is
answered, and each prompt starts with all ids of the turns before it.
"""

import json

import pytest

from coding_agents import ANSWERS, events, playing, recorded, replayed


@pytest.fixture
def playing_for(tmp_path):
    servers = []

    def start(agent):
        servers.append(playing(agent, tmp_path))
        return servers[0]

    yield start
    for server in servers:
        server.stop()


def turns(server):
    """Of each captured turn in its order: the ids before it (none at the beginning of a conversation), its prompt, its answer."""
    (shown,) = json.loads(server.get("/v1/trajectories"))["data"]
    assert shown["complete"] and not shown["ambiguous"]
    whole, told = {None: []}, []
    for turn in json.loads(server.get(f"/v1/trajectories/{shown['id']}"))["turns"]:
        before = whole[turn["parent_id"]]
        prompt = before + turn["added_token_ids"]
        whole[turn["id"]] = prompt + turn["sampled_token_ids"]
        told.append((before, prompt, turn["sampled_token_ids"]))
    return shown["session"], told


def said(text):
    """The texts and the calls of a streamed answer, in either dialect."""
    words, calls = "", []
    for event in events(text):
        if event["type"] == "response.output_item.done":
            item = event["item"]
            if item["type"] == "message":
                words += item["content"][0]["text"]
            else:
                calls.append((item.get("namespace"), item["name"]))
        elif event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            calls.append((None, event["content_block"]["name"]))
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
            words += event["delta"]["text"]
    return words, calls


def told_of(text):
    """The tools that the answer says the model was not shown."""
    first = events(text)[0]
    return (first.get("message") or first.get("response")).get("ignored_tools")


# Which requests begin a conversation: the first one, a sub-agent's and a search's.
BEGINS = {"codex": {0}, "claude_code": {0, 3, 5}, "claude_code_tool_search": {0}}


@pytest.mark.parametrize("agent", BEGINS)
def test_each_turn_of_a_session_continues_the_ids_of_the_last(playing_for, agent):
    server = playing_for(agent)
    outcomes = []
    for number, (request, status, headers, text) in enumerate(replayed(server, agent)):
        assert status == 200, text
        words, calls = said(text)
        answer = ANSWERS[agent][number]
        assert words.strip() == answer.partition("<tool_call>")[0].strip()
        assert len(calls) == answer.count("<tool_call>") == len(request["calls"])
        served = [tool["type"] for tool in request["body"]["tools"] if tool.get("type", "").startswith("web_search")]
        ignored = ["web_search"] if served else None
        assert told_of(text) == ignored and headers["X-Ignored-Tools"] == (ignored and "web_search")
        if "close_agent" in answer:
            assert calls == [("multi_agent_v1", "close_agent")]
        outcomes.append(headers["X-Token-Continuity"])
    assert len(outcomes) == len(ANSWERS[agent])
    session, told = turns(server)
    body = recorded(agent)[0]["body"]
    assert session == (body["prompt_cache_key"] if agent == "codex" else body["metadata"]["user_id"])
    assert [number for number, (before, _, _) in enumerate(told) if not before] == sorted(BEGINS[agent])
    for number, (outcome, (before, _, sampled)) in enumerate(zip(outcomes, told, strict=True)):
        known = f"cache; outcome=exact; reused={len(before)};" if before else "none; outcome=fresh; reused=0;"
        assert outcome.startswith(known), (number, outcome)
        # Each letter is an id of its own, and the end is one.
        assert len(sampled) == len(ANSWERS[agent][number]) + 1


def references(body):
    """The names of the tools that results refer to."""
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    results = [block["content"] for block in blocks if block["type"] == "tool_result"]
    items = [item for content in results if isinstance(content, list) for item in content]
    return [item["tool_name"] for item in items if item["type"] == "tool_reference"]


def test_tools_that_a_search_finds_are_shown_by_its_references(playing_for):
    agent = "claude_code_tool_search"
    known = []
    for request, status, headers, text in replayed(playing_for(agent), agent):
        assert status == 200, text
        found = references(request["body"])
        deferred = [tool["name"] for tool in request["body"]["tools"] if tool.get("defer_loading")]
        # The client adds a tool to its list only once a search has found it.
        assert set(found) < set(deferred)
        later = [name for name in deferred if name not in found]
        assert headers["X-Deferred-Tools"] == ", ".join(later)
        assert events(text)[0]["message"]["deferred_tools"] == later
        known.append(found)
    assert known[0] == [] and known[-1] == ["WebFetch", "CronList", "TaskStop"]
