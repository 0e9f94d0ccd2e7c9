// What would happen: a conversation in, its prompt out, as the server would make it. Nothing is generated.

import { element, facts, fill, many } from "./dom.js";
import { shades, swatch } from "./shades.js";
import { json } from "./server.js";
import { TokenView } from "./tokens.js";

const EXAMPLE = [
  { role: "user", content: "Name a volcano in Iceland." },
];

export async function showPrompt({ main, about }) {
  const title = element("h1", {}, "What would happen");
  if (about.read_only) {
    fill(main, [title, element("p", { class: "empty" },
      "A file is looked at here, without a server that could answer. Open this page at a server that was started with --capture.")]);
    return null;
  }
  let view = null;
  const input = element("textarea", { id: "messages", rows: "14", spellcheck: "false", "aria-describedby": "messages-hint",
    value: JSON.stringify(EXAMPLE, null, 2) });
  const result = element("section", { class: "result", "aria-label": "The prompt", "aria-live": "polite" });
  const form = element("form", { class: "ask", onsubmit: async (event) => {
    event.preventDefault();
    await run();
  } }, element("label", { for: "messages" }, "Messages, or the body of a chat request, as JSON"), input,
    element("p", { id: "messages-hint", class: "hint" },
      "Assistant messages may carry prompt_token_ids and generation_token_ids. The prompt is made as for an answer, and nothing is sampled. Ctrl+Enter sends."),
    element("button", { type: "submit" }, "Show the prompt"));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  fill(main, [title, element("div", { class: "prompt" }, form, result)]);

  async function run() {
    view?.close();
    view = null;
    let body;
    try {
      const given = JSON.parse(input.value);
      body = Array.isArray(given) ? { messages: given } : given;
    } catch (error) {
      return refuse("This is not JSON", error.message);
    }
    try {
      const answer = await json("tokenize", { body: { ...body, return_token_strs: true, return_token_continuity: true } });
      show(answer, readAs(answer, await textOf(answer.tokens)));
    } catch (error) {
      refuse(error.status === 400 ? "The server refuses this conversation" : "The server did not answer", error.message);
    }
  }

  function refuse(heading, text) {
    fill(result, [element("div", { class: "refused", role: "alert" }, element("h2", {}, heading), element("p", {}, text))]);
  }

  function show(answer, { names, fragments, areTexts }) {
    const found = answer.token_continuity ?? {};
    const reused = found.reused_ids ?? 0;
    const spans = [[0, reused, "reused"], [reused, answer.count, "prompt"]].filter(([start, end]) => end > start)
      .map(([start, end, origin]) => ({ start, end, origin }));
    const data = { token_ids: answer.tokens, spans, logprobs: [], drift: null, fragments };
    const told = (id) => (fragments.has(id) ? `${names.get(id)} (a piece of a character)` : JSON.stringify(names.get(id)));
    const shade = shades("origin", data);
    const legend = shade.legend.map((entry) => swatch({ ...entry, text: entry.name === "o-prompt" ? "encoded from text" : entry.text }, element));
    const chosen = element("p", { class: "chosen", role: "status" });
    view = new TokenView({ data, shade, label: "Tokens of the prompt", textOf: (id) => names.get(id),
      onselect: (at) => { chosen.textContent = `position ${at} · id ${answer.tokens[at]} · ${told(answer.tokens[at]) ?? "no text"}`; } });
    fill(result, [
      facts([
        ["Prompt", `${many(answer.count, "id")} of at most ${answer.max_model_len}`],
        ["Outcome", found.outcome],
        ["Known ids", reused ? `${many(reused, "id")}, by ${found.source.replaceAll("_", " ")}` : "none"],
        ["Proof", found.proof?.replaceAll("_", " ")],
        ["Matched by", found.matched_by?.replaceAll("_", " ")],
        ["Ends at message", found.anchor],
        ["Reason", found.reason?.replaceAll("_", " ")],
        ["Warnings", found.warnings?.map((one) => one.replaceAll("_", " ")).join(", ")],
        ["Encoding again", found.drift && (found.drift.differs ? `differs from position ${found.drift.position}` : "gives the same ids")],
      ]),
      element("ul", { class: "legend" }, legend), view.element, chosen,
      element("p", { class: "hint", id: "token-keys" }, `Keys: arrows, Page, Home, End.${areTexts ? "" : " Tokens are spelt as the vocabulary spells them."}`),
    ]);
    view.layout();
  }
  return () => view?.close();
}

// The text that ids have together; null where the server cannot tell it.
async function textOf(tokens) {
  try {
    return (await json("detokenize", { body: { tokens } })).prompt;
  } catch {
    return null;
  }
}

// What each id stands for. The server says only how the vocabulary spells its tokens: a way to read them is right where all
// together give the text of the prompt. Where none does, they stay as they are spelt.
function readAs({ tokens, token_strs: spelt }, text) {
  const names = new Map(tokens.map((id, at) => [id, spelt[at] ?? undefined]));
  for (const bytesOf of text === null || spelt.includes(null) ? [] : [bytesOfByteLevel, bytesOfSentencePiece]) {
    const bytes = new Map([...names].map(([id, name]) => [id, bytesOf(name)]));
    const together = decoded(tokens.flatMap((id) => bytes.get(id)), false);
    // SentencePiece leaves out the blank before the first word.
    if (together !== text && together !== ` ${text}`) continue;
    const fragments = new Set();
    for (const [id, own] of bytes) {
      const whole = decoded(own, true);
      if (whole === null) fragments.add(id);
      names.set(id, whole ?? own.map(spelling).join(""));
    }
    return { names, fragments, areTexts: true };
  }
  return { names, fragments: new Set(), areTexts: false };
}

// The text of bytes. Where they are not whole characters it is null or, if it need not be `whole`, has U+FFFD there.
function decoded(bytes, whole) {
  try {
    return new TextDecoder("utf-8", { fatal: whole, ignoreBOM: true }).decode(new Uint8Array(bytes));
  } catch {
    return null;
  }
}

// A byte of a piece of a character; what stands beside it is read as the text that it is.
const spelling = (byte) => (byte < 0x80 ? String.fromCharCode(byte) : `\\x${byte.toString(16).toUpperCase()}`);

const bytesOfText = (text) => [...new TextEncoder().encode(text)];

// Byte-level vocabularies have a printable character for each byte: the byte's own or, where it has none, one from U+0100 on.
const BYTES = new Map();
for (let byte = 0, next = 0x100; byte < 0x100; byte += 1) {
  const isPrintable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  BYTES.set(String.fromCharCode(isPrintable ? byte : next++), byte);
}

// A token with a character of no byte was added to the vocabulary, and is its own text.
function bytesOfByteLevel(name) {
  const bytes = [...name].map((character) => BYTES.get(character));
  return bytes.includes(undefined) ? bytesOfText(name) : bytes;
}

// Vocabularies of SentencePiece spell a blank as ▁, and bytes in hexadecimal.
function bytesOfSentencePiece(name) {
  const byte = /^<0x([0-9A-F]{2})>$/.exec(name);
  return byte ? [parseInt(byte[1], 16)] : bytesOfText(name.replaceAll("▁", " "));
}
