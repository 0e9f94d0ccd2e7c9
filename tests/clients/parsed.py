"""What an answer says, in any dialect: of each choice its reasoning, its content, its calls, and why it ended."""

from recorded import joined

# Where the text of a part of an item is, or of a block of a message.
CONTENT = {"output_text": "text", "text": "text"}
REASONING = {"reasoning_text": "text", "thinking": "thinking"}


def parsed(answer):
    """What an answer (`recorded.Answer`) says; None if it is none of a model."""
    body = joined(answer.body) if answer.events else answer.body
    if answer.status != 200 or not isinstance(body, dict):
        return None
    if "choices" in body:
        return [of_choice(choice) for choice in body["choices"]]
    if body.get("object") == "response":
        details = body.get("incomplete_details") or {}
        return [of_items(body["output"], details.get("reason") or body["status"])]
    if body.get("type") == "message":
        return [of_items([body], body["stop_reason"])]
    return None


def of_choice(choice):
    message = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return {
        "reasoning": message.get("reasoning"),
        "content": message.get("content"),
        "calls": [[call["name"], call["arguments"]] for call in calls],
        "finish_reason": choice["finish_reason"],
    }


def of_items(items, finish_reason):
    """The same of items of a response, or of a message with blocks."""
    said = {"reasoning": None, "content": None, "calls": [], "finish_reason": finish_reason}
    for item in items:
        if item["type"] == "function_call":
            said["calls"].append([item["name"], item["arguments"]])
        for part in item.get("content") or []:
            if part["type"] == "tool_use":
                said["calls"].append([part["name"], part["input"]])
            for field, texts in (("content", CONTENT), ("reasoning", REASONING)):
                if part["type"] in texts:
                    said[field] = (said[field] or "") + part[texts[part["type"]]]
    return said
