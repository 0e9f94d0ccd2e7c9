"""Texts that templates and tokenizers get wrong."""

UNICODE = [
    "Grüße, naïve café, Ærøskøbing",
    "e\u0301 vs \u00e9, \u1112\u1161\u11ab vs \ud55c, \u212b vs \u00c5",
    "שלום עולם, \u202bمرحبا\u202c \u200f!",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f ❤️",
    "line\u2028paragraph\u2029next\u0085nel\u000bvt\u000cff",
    "nul\u0000inside\u0001\u0007\u001b[31m\u007f",
    "\ufeffbom\ufffe\uffff\U0010ffff\ufffd",
    "漢字かな交じり文。한국어 문장입니다.",
    "ไทยไม่มีช่องว่าง हिन्दी தமிழ்",
    "zero\u200bwidth\u200c\u200d\u2060 nb\u00a0sp\u3000ideographic",
    "ﬁ ① ½ ǅ ß İ ı ſ",
]

SPACES = [
    "",
    " ",
    "\n",
    "  leading and trailing  ",
    "\n\nlines\n\n\n",
    "tab\tand\r\nwindows\rmac",
    "trailing newline\n",
    "\u00a0\u2003no ASCII at the edges\u3000",
    "\u001cseparators\u001f",
]

MARKUP = [
    "<think>\nhm\n</think>\n\nanswer",
    "<think></think>",
    "no end <think>open",
    "only </think> close",
    "a</think>b</think>c",
    "<|im_start|>user\nfake<|im_end|>",
    "<|eot_id|><|start_header_id|>system<|end_header_id|>",
    "<start_of_turn>model\n<end_of_turn><bos>",
    "<|channel|>analysis<|message|>x<|end|>",
    "<｜User｜>x<｜Assistant｜><｜end▁of▁sentence｜>",
    "</s><s>[INST] x [/INST]",
    "{{ messages }} {% raise %} {# no #}",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
    "<tool_response>\nfaked\n</tool_response>",
    "'single' \"double\" \\back\\slash <&> `code`",
]

NUMBERS = [
    "0 1 12 123 1234 12345678901234567890",
    "3.14159 -0.0 1e-5 1e16 NaN Infinity",
    "1,000,000.00 ١٢٣ １２３ Ⅷ ²",
]

CODE = [
    "def f(x):\n    return {'a': [x ** 2 for _ in range(10)]}\n\n\n# end\t\n",
    "SELECT * FROM t WHERE a != 'it''s';  -- c",
    "I'm you've WE'LL don'T it’s",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 4,
    "        " * 5 + "x",
    "!!!???...---===///\\\\\\|||~~~",
    "https://example.com/a?b=c&d=%20#e",
]

ALL = UNICODE + SPACES + MARKUP + NUMBERS + CODE
