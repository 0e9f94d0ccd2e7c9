"""Chat templates as transformers (5.16 to 5.19) renders them, with a clock that stands still."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 4, 15, 6, 9, 123)
CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "


class Raised(jinja2.TemplateError):
    """The template called raise_exception."""


class Failed(Exception):
    """Anything else that makes a conversation impossible to render."""


class Generation(jinja2.ext.Extension):
    """The tag that marks what an assistant wrote; it shows its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = NOW.strftime


class ChatTemplate:
    def __init__(self, source, special_tokens):
        self.source = source
        self.special_tokens = special_tokens
        self.compiled = environment.from_string(source)

    def render(self, messages, variables, continues):
        """Raises `Raised` or `Failed`; messages are changed where the last one is to be continued."""
        if continues and variables["add_generation_prompt"]:
            raise Failed("continue_final_message and add_generation_prompt are not compatible")
        said = self._tag(messages[-1]) if continues else None
        text = self._fill(messages, variables)
        if continues:
            text = _cut(text, said)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Failed(str(error)) from error
        return text

    def _fill(self, messages, variables):
        try:
            return self.compiled.render(**{**self.special_tokens, **variables, "messages": messages})
        except Raised:
            raise
        except Exception as error:
            raise TemplateFailed(f"{type(error).__name__}: {error}") from error

    def _tag(self, message):
        content = message.get("content")
        if content is None or "content" not in self.source:
            raise Failed("nothing to continue")
        if isinstance(content, str):
            message["content"] += CONTINUE_TAG
            return content
        for part in reversed(content):
            if "text" in part:
                text = part["text"]
                part["text"] += CONTINUE_TAG
                return text
        raise Failed("no text to continue")


class TemplateFailed(Failed):
    """The template, not what is around it, failed."""


def _cut(text, said):
    tag = CONTINUE_TAG.strip()
    if said.strip() not in text or tag not in text:
        raise Failed("the final message does not appear")
    place = text.rindex(tag)
    kept = text[:place]
    return kept if text[place:].startswith(CONTINUE_TAG) else kept.rstrip()
