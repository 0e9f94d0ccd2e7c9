// Asks the server. The key is kept for this tab, and goes only to the server that sent this file.

const ROOT = new URL("..", import.meta.url);
const KEY = "tito inspect key";

export const address = (path) => new URL(path, ROOT);

export function pathOf(id, rest = "") {
  return `v1/trajectories/${encodeURIComponent(id)}${rest}`;
}

export class Refused extends Error {
  constructor(status, message, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

// Asks for the key until one is typed.
function askForKey() {
  const dialog = document.getElementById("ask");
  const input = document.getElementById("ask-key");
  if (sessionStorage.getItem(KEY)) {
    document.getElementById("ask-why").textContent = "The server does not know that key. Try another one; it stays in this tab.";
  }
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      if (input.value) sessionStorage.setItem(KEY, input.value.trim());
      input.value = "";
      resolve();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

let asking = null;

// The answer to a request; one that is refused is an error with the sentence of the server.
export async function ask(path, { body, signal } = {}) {
  for (;;) {
    const headers = {};
    const key = sessionStorage.getItem(KEY);
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const answer = await fetch(address(path), {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
    if (answer.status === 401) {
      asking ??= askForKey().finally(() => (asking = null));
      await asking;
      continue;
    }
    if (answer.ok) return answer;
    const text = await answer.text();
    throw refusal(answer.status, text);
  }
}

function refusal(status, text) {
  try {
    const body = JSON.parse(text);
    return new Refused(status, body.error?.message ?? text, body);
  } catch {
    return new Refused(status, text || `The server answered with ${status}.`);
  }
}

export async function json(path, options) {
  return (await ask(path, options)).json();
}

// Saves what a path answers with as a file.
export async function save(path, name) {
  const blob = await (await ask(path)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A command for a shell. The key is a variable of it: it does not belong into what is pasted.
export function curl(path, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl -sS", quoted(address(path).href)];
  if (sessionStorage.getItem(KEY)) parts.push('-H "Authorization: Bearer $TITO_API_KEY"');
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return parts.join(" ");
}
