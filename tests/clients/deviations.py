"""Where tito's answers differ from the recorded ones on purpose, by the words of docs/vllm-compatibility.md that say why.

Of each exchange the places that differ, as patterns. One that no longer differs fails its test.
"""

DEVIATIONS = {
    "Responses are stored without a setting": {"plain/responses_background": ["status"]},
}

# Exchanges that are not served yet, by a pattern of their names.
NOT_SERVED = {
    r".*/anthropic_.*": "the endpoint is not there yet",
}
