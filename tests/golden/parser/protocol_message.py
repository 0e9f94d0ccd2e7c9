"""What stands for the messages of vLLM's protocol in the recording scripts: of each, the readers use some of these fields."""


class ProtocolMessage:
    fields = ("id", "type", "index", "function", "name", "arguments", "content", "reasoning", "tools_called", "tool_calls")
    def __init__(self, **values):
        for field in self.fields:
            setattr(self, field, values.get(field))
        self.tool_calls = self.tool_calls or []
