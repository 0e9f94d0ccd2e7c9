"""Events and exports, line by line. A line ends at a line feed only: `splitlines` also ends it at U+2028, U+0085 and their like,
which JSON has as they are."""

import json


def lines_of(text):
    """Lines, without empty ones."""
    return [line for line in text.split("\n") if line]


def data_of(text):
    """What the events of a stream carry, `[DONE]` among it."""
    return [line.removeprefix("data: ") for line in lines_of(text) if line.startswith("data: ")]


def events_of(text):
    """The events of a stream that are objects."""
    return [json.loads(data) for data in data_of(text) if data.startswith("{")]


def documents_of(text):
    """The JSON of each line."""
    return [json.loads(line) for line in lines_of(text)]
