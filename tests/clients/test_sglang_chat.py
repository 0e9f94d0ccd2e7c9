"""SGLang's fields of chats: what is refused, by name."""

import requests


def test_what_a_stream_has_no_place_for_and_ids_that_contradict_each_other_are_refused_by_name(server):
    message = {"role": "user", "content": "Hi"}
    for asked, param in [
        ({"return_meta_info": True, "stream": True}, "return_meta_info"),
        ({"return_prompt_token_ids": True, "stream": True}, "return_prompt_token_ids"),
        ({"input_ids": [1, 2], "prompt_token_ids": [1, 3]}, "input_ids"),
        ({"input_ids": [10**9]}, "input_ids"),
    ]:
        body = {"messages": [message], **asked}
        answer = requests.post(f"{server.url}/v1/chat/completions", json=body, timeout=300)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
