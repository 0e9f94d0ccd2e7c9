"""Records what jinja2, set up as transformers sets it up, makes of the templates in this directory.

    pip install jinja2==3.1.6 && python record.py

snippets.jsonl: one template a line, rendered with snippets.context.json. conversations.jsonl: one context a line for
one of the .jinja files. Both are read and written back with new results: add a line without "text" to add a case.
"text" is null where jinja2 fails.
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 4, 15, 6, 9, 123)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
HERE = pathlib.Path(__file__).parent


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = NOW.strftime


def render(source, context):
    try:
        return environment.from_string(source).render(**{**SPECIAL_TOKENS, **context})
    except Exception:
        return None


def record(name, result):
    path = HERE / name
    cases = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [json.dumps({**case, "text": result(case)}) for case in cases]
    path.write_text("\n".join(lines) + "\n")


snippets_context = json.loads((HERE / "snippets.context.json").read_text())
record("snippets.jsonl", lambda case: render(case["template"], snippets_context))
record("conversations.jsonl", lambda case: render((HERE / f"{case['template']}.jinja").read_text(), case["context"]))
