// The descriptiveness dial: a native range over the grid of a model's spectrum, under bars of the words expected there.

import { el, fromTemplate } from "./dom.js";
import { fixed } from "./numbers.js";

const UNMEASURED_HEIGHT = 0.4;

export class Dial {
  #points = [];
  #part;

  /** `moved` is called on every step, also while the thumb is dragged. */
  constructor(place, id, moved) {
    const dial = fromTemplate("dial-template");
    this.#part = (name) => dial.querySelector(`[data-part="${name}"]`);
    this.dial = dial;
    this.input = this.#part("input");
    this.input.id = id;
    this.#part("label").htmlFor = id;
    this.#part("hint").id = `${id}-hint`;
    this.input.setAttribute("aria-describedby", `${id}-hint`);
    this.input.addEventListener("input", () => {
      this.#tell();
      moved();
    });
    place.append(dial);
  }

  /** Follow this model's spectrum; disabled where it has none. */
  setModel(model, descriptiveness = null) {
    const spectrum = model?.spectrum ?? null;
    this.#points = spectrum?.grid ?? [];
    this.input.disabled = !spectrum;
    this.dial.classList.toggle("off", !spectrum);
    this.input.max = String(Math.max(1, this.#points.length - 1));
    const wanted = descriptiveness ?? spectrum?.default ?? 0;
    const distances = this.#points.map((point) => Math.abs(point.descriptiveness - wanted));
    this.input.value = String(Math.max(0, distances.indexOf(Math.min(...distances))));
    this.#draw();
    this.#tell();
    this.#part("hint").textContent = spectrum ? "" : `${model?.id ?? "This model"} speaks in one way only: it has no dial.`;
  }

  /** Turned by the page, not by its user. */
  set enabled(on) {
    this.input.disabled = !on || !this.#points.length;
    this.dial.classList.toggle("off", this.input.disabled);
  }

  get point() {
    return this.#points[Number(this.input.value)] ?? null;
  }

  /** What a request says; null where the model has no spectrum. */
  get value() {
    return this.point?.descriptiveness ?? null;
  }

  #draw() {
    const most = Math.max(0, ...this.#points.map((point) => point.expected_words ?? 0));
    const bars = this.#points.map((point) => {
      const bar = el("i");
      bar.style.height = `${100 * (most && point.expected_words ? point.expected_words / most : UNMEASURED_HEIGHT)}%`;
      return bar;
    });
    this.#part("bars").replaceChildren(...bars);
  }

  #tell() {
    const at = Number(this.input.value);
    [...this.#part("bars").children].forEach((bar, number) => bar.classList.toggle("reached", number <= at));
    const { point } = this;
    const expected = point?.expected_words;
    this.#part("value").textContent = point ? fixed(point.descriptiveness) : "";
    this.#part("words").textContent = expected ? `≈ ${fixed(expected, 0)} words` : "";
    const spoken = expected ? `, about ${fixed(expected, 0)} words` : "";
    this.input.setAttribute("aria-valuetext", point ? `${fixed(point.descriptiveness)}${spoken}` : "not available");
  }
}
