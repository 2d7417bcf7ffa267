// The picture that all tabs speak of, and the ways to bring one: a file, a drop anywhere, the clipboard, the example.

import { Trouble } from "./api.js";
import { byId } from "./dom.js";

const EXAMPLE = "page/example.jpg";

/** Holds one picture. Events: `change` (a new one is there) and `trouble` (its detail is a Trouble). */
export class Pictures extends EventTarget {
  current = null;
  #count = 0;

  constructor(max_bytes) {
    super();
    this.max_bytes = max_bytes;
  }

  choose(file) {
    if (file.size > this.max_bytes) return this.#fail(new Trouble("too_large"));
    if (this.current) URL.revokeObjectURL(this.current.url);
    this.current = { id: ++this.#count, file, name: file.name || "picture", url: URL.createObjectURL(file) };
    this.dispatchEvent(new Event("change"));
  }

  async chooseExample() {
    try {
      const response = await fetch(EXAMPLE);
      if (!response.ok) throw new Trouble("no_answer");
      this.choose(new File([await response.blob()], "a man with a camera.jpg", { type: "image/jpeg" }));
    } catch {
      this.#fail(new Trouble("no_answer"));
    }
  }

  #fail(trouble) {
    this.dispatchEvent(new CustomEvent("trouble", { detail: trouble }));
  }
}

/** Take what is dropped anywhere or pasted; the page never leaves for a dropped file. */
export function acceptDropsAndPastes(pictures) {
  const root = document.documentElement;
  let leaving;
  const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    clearTimeout(leaving);
    root.classList.add("dragging");
  });
  addEventListener("dragleave", () => {
    leaving = setTimeout(() => root.classList.remove("dragging"), 80); // leaving one element is entering the next
  });
  addEventListener("drop", (event) => {
    root.classList.remove("dragging");
    if (!carriesFiles(event)) return;
    event.preventDefault();
    take(event.dataTransfer.files);
  });
  addEventListener("paste", (event) => take(event.clipboardData?.files ?? []));

  function take(files) {
    const [file] = files;
    if (!file) return;
    if (byId("panel-experiments").hidden === false) byId("tab-caption").click();
    pictures.choose(file);
  }
}
