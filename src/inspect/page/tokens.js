// A sequence of tokens as lines of text. Only the lines that can be seen are in the page, so that a hundred thousand tokens
// scroll like a hundred.

import { element, fill } from "./dom.js";

const LINE = 27;
const OVERSCAN = 12;
const MOST_CELLS = 64;
const GUTTER = 7;

// Characters that take two cells in most fonts.
const WIDE = /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u;
const NO_WIDTH = /\p{Mark}|[\u200b-\u200f\u2060\ufeff]/u;
const PLAIN = /^[\x20-\x7e]*$/;

// What stands for a text in the page: blanks stay blanks, and what has no shape gets one.
export function visible(text) {
  let shown = "";
  for (const character of text) {
    const code = character.codePointAt(0);
    if (character === "\n") shown += "↵";
    else if (character === "\t") shown += "⇥";
    else if (code < 0x20) shown += String.fromCodePoint(0x2400 + code);
    else if (code === 0x7f) shown += "␡";
    else if (NO_WIDTH.test(character) && shown === "") shown += `◌${character}`;
    else shown += character;
  }
  return shown === "" ? "∅" : shown;
}

function cells(text) {
  if (PLAIN.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += NO_WIDTH.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
  return Math.max(width, 1);
}

export class TokenView {
  // `textOf(id)` is the text of an id; `heads` are lines that stand before positions: [position, element maker].
  constructor({ data, textOf, shade, heads = [], onselect, label }) {
    Object.assign(this, { data, textOf, shade, heads, onselect });
    this.ids = data.token_ids;
    this.active = -1;
    this.looks = new Map();
    this.lines = [];
    this.drawn = new Map();
    this.drifts = new Uint8Array(this.ids.length);
    for (const drift of data.drift ?? []) {
      this.drifts.fill(1, drift.start, drift.end);
      if (drift.start === drift.end && this.ids.length) this.drifts[Math.min(drift.start, this.ids.length - 1)] = 2;
    }
    this.space = element("div", { class: "space" });
    this.probe = element("span", { class: "probe", "aria-hidden": "true" }, "0".repeat(50));
    this.element = element("div", { class: "tokens", tabindex: "0", role: "listbox", "aria-label": label,
      "aria-describedby": "token-keys" }, this.probe, this.space);
    this.element.addEventListener("scroll", () => this.plan(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("pointerover", (event) => this.point(event));
    this.element.addEventListener("click", (event) => this.point(event));
    this.element.addEventListener("focus", () => { if (this.active < 0 && this.ids.length) this.select(this.first()); });
    this.observer = new ResizeObserver(() => this.layout());
    this.observer.observe(this.element);
  }

  close() {
    this.observer.disconnect();
  }

  look(id) {
    let look = this.looks.get(id);
    if (look === undefined) {
      const text = this.textOf(id);
      let shown = text === undefined ? `⟨${id}⟩` : visible(text);
      let width = cells(shown);
      if (width > MOST_CELLS) {
        shown = `${shown.slice(0, MOST_CELLS - 1)}…`;
        width = cells(shown);
      }
      look = { shown, width, breaks: text !== undefined && text.includes("\n"), odd: !PLAIN.test(shown) };
      this.looks.set(id, look);
    }
    return look;
  }

  // Puts all tokens on lines; what was on top stays there.
  layout() {
    const cell = this.probe.getBoundingClientRect().width / 50;
    const columns = Math.max(20, Math.floor((this.element.clientWidth - 24) / cell) - GUTTER);
    if (!cell || columns === this.columns) return;
    const top = this.lines.length ? this.first() : 0;
    this.columns = columns;
    this.lines = [];
    const heads = new Map(this.heads);
    let start = 0;
    let width = 0;
    const end = (at) => {
      if (at > start) this.lines.push({ start, end: at });
      start = at;
      width = 0;
    };
    for (let at = 0; at < this.ids.length; at += 1) {
      if (heads.has(at)) {
        end(at);
        this.lines.push({ start: at, end: at, head: heads.get(at) });
      }
      const { width: own, breaks } = this.look(this.ids[at]);
      if (width + own > columns) end(at);
      width += own;
      if (breaks) end(at + 1);
    }
    end(this.ids.length);
    this.space.style.height = `${this.lines.length * LINE + 16}px`;
    for (const line of this.drawn.values()) line.remove();
    this.drawn.clear();
    if (top > 0) this.element.scrollTop = this.lineOf(top) * LINE;
    this.draw();
  }

  // The first token that can be seen.
  first() {
    let at = Math.min(Math.ceil(this.element.scrollTop / LINE), this.lines.length - 1);
    while (at < this.lines.length - 1 && this.lines[at].head) at += 1;
    return this.lines[at]?.start ?? 0;
  }

  lineOf(at) {
    let [low, high] = [0, this.lines.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.lines[middle].end <= at) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  plan() {
    this.planned ??= requestAnimationFrame(() => {
      this.planned = null;
      this.draw();
    });
  }

  draw() {
    const from = Math.max(0, Math.floor(this.element.scrollTop / LINE) - OVERSCAN);
    const to = Math.min(this.lines.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / LINE) + OVERSCAN);
    for (const [at, line] of this.drawn) {
      if (at < from || at >= to) {
        line.remove();
        this.drawn.delete(at);
      }
    }
    const made = document.createDocumentFragment();
    for (let at = from; at < to; at += 1) {
      if (this.drawn.has(at)) continue;
      const line = this.line(this.lines[at]);
      line.style.top = `${at * LINE + 8}px`;
      this.drawn.set(at, line);
      made.append(line);
    }
    this.space.append(made);
  }

  line({ start, end, head }) {
    const line = document.createElement("div");
    line.className = head ? "line head" : "line";
    line.setAttribute("role", "presentation");
    if (head) {
      fill(line, [head()]);
      return line;
    }
    const number = document.createElement("span");
    number.className = "at";
    number.setAttribute("aria-hidden", "true");
    number.textContent = String(start);
    line.append(number);
    for (let at = start; at < end; at += 1) line.append(this.token(at));
    return line;
  }

  token(at) {
    const { shown, width, odd } = this.look(this.ids[at]);
    const made = document.createElement("span");
    made.at = at;
    made.id = `token-${at}`;
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", at === this.active);
    made.textContent = shown;
    made.className = this.classOf(at);
    if (odd) made.style.width = `${width}ch`;
    return made;
  }

  classOf(at) {
    const drift = ["", " drift", " drift-before"][this.drifts[at]];
    const fragment = this.data.fragments?.has(this.ids[at]) ? " fragment" : "";
    return `token ${this.shade.classes[this.shade.of[at]]}${drift}${fragment}${at === this.active ? " active" : ""}`;
  }

  paint(shade) {
    this.shade = shade;
    for (const token of this.space.querySelectorAll(".token")) if (token.at !== undefined) token.className = this.classOf(token.at);
  }

  point(event) {
    const at = event.target.at;
    if (at !== undefined && at !== this.active) this.select(at, false);
  }

  select(at, scrolls = true) {
    const before = this.active;
    this.active = Math.max(0, Math.min(at, this.ids.length - 1));
    if (scrolls) this.reveal(this.active);
    for (const changed of [before, this.active]) {
      const token = document.getElementById(`token-${changed}`);
      if (!token) continue;
      token.className = this.classOf(changed);
      token.setAttribute("aria-selected", changed === this.active);
    }
    this.element.setAttribute("aria-activedescendant", `token-${this.active}`);
    this.onselect?.(this.active);
  }

  reveal(at) {
    const top = this.lineOf(at) * LINE + 8;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop + LINE) this.element.scrollTop = Math.max(0, top - 2 * LINE);
    else if (top + 2 * LINE > scrollTop + clientHeight) this.element.scrollTop = top + 3 * LINE - clientHeight;
    this.draw();
  }

  // Shows a position in the middle, and selects it.
  go(at) {
    this.element.scrollTop = Math.max(0, this.lineOf(at) * LINE - this.element.clientHeight / 3);
    this.draw();
    this.select(at);
  }

  vertical(lines) {
    let line = this.lineOf(this.active);
    const column = this.active - this.lines[line].start;
    const step = Math.sign(lines);
    line = Math.max(0, Math.min(line + lines, this.lines.length - 1));
    while (this.lines[line]?.head && line + step >= 0 && line + step < this.lines.length) line += step;
    const { start, end } = this.lines[line];
    return end > start ? Math.min(start + column, end - 1) : this.active;
  }

  key(event) {
    if (!this.ids.length || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / LINE) - 2);
    const line = this.lines[this.lineOf(Math.max(0, this.active))];
    const moves = {
      ArrowRight: () => this.active + 1,
      ArrowLeft: () => this.active - 1,
      ArrowDown: () => this.vertical(1),
      ArrowUp: () => this.vertical(-1),
      PageDown: () => this.vertical(page),
      PageUp: () => this.vertical(-page),
      Home: () => (event.ctrlKey ? 0 : line.start),
      End: () => (event.ctrlKey ? this.ids.length - 1 : line.end - 1),
      d: () => this.nextDrift(1),
      D: () => this.nextDrift(-1),
      t: () => this.nextHead(1),
      T: () => this.nextHead(-1),
    };
    const move = moves[event.key];
    if (!move || (event.ctrlKey && !["Home", "End"].includes(event.key))) return;
    event.preventDefault();
    this.select(move());
  }

  nextDrift(step) {
    const starts = (this.data.drift ?? []).map(({ start }) => start);
    return this.beside(starts, step);
  }

  nextHead(step) {
    return this.beside(this.heads.map(([at]) => at), step);
  }

  beside(starts, step) {
    const found = step > 0 ? starts.find((at) => at > this.active) : starts.findLast((at) => at < this.active);
    return found ?? this.active;
  }
}
