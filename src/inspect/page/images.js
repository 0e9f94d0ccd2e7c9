// The images of a sequence. A link has no key of its own, so each picture is asked for and shown from memory.

import { count, element, facts, many } from "./dom.js";
import { ask, pathOf } from "./server.js";

export class Pictures {
  constructor(trajectory, turn, images, signal) {
    Object.assign(this, { trajectory, turn, images, signal });
    this.links = new Map();
    signal?.addEventListener("abort", () => {
      for (const link of this.links.values()) link.then((url) => url && URL.revokeObjectURL(url));
    }, { once: true });
  }

  // The image that a position is a placeholder of.
  at(position) {
    return this.images.find(({ offset, length }) => offset <= position && position < offset + length);
  }

  // Where images begin, with what stands there before their placeholders.
  heads() {
    return this.images.map((image) => [image.offset, () => element("span", {}, `Image, ${many(image.length, "placeholder")}`)]);
  }

  link({ identity }) {
    if (!this.links.has(identity)) {
      const path = pathOf(this.trajectory, `/turns/${encodeURIComponent(this.turn)}/images/${encodeURIComponent(identity)}`);
      const link = ask(path, { signal: this.signal }).then((answer) => answer.blob()).then((blob) => URL.createObjectURL(blob));
      this.links.set(identity, link.catch(() => null));
    }
    return this.links.get(identity);
  }

  about(image) {
    const shown = element("div", { class: "picture" });
    const [, rows, columns] = image.grid_thw;
    if (image.file_kept) {
      this.link(image).then((url) => shown.replaceChildren(url
        ? element("img", { src: url, alt: `Image of ${columns} by ${rows} patches` })
        : element("p", { class: "hint" }, "The file could not be loaded.")));
    } else {
      shown.append(element("p", { class: "hint" }, "Its file was not kept (--capture-images false)."));
    }
    return element("section", { class: "image", "aria-label": "Image" }, element("h2", {}, "Image"), shown, facts([
      ["Placeholders", `${count(image.offset)} to ${count(image.offset + image.length - 1)}`],
      ["Patches", `${count(columns)} × ${count(rows)}`],
      ["Identity", image.identity],
    ]));
  }
}
