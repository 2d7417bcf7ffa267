// One arm of a comparison: a model, its dial, the caption it gave, and the votes on it.

import { facts, remarks } from "./caption_facts.js";
import { Dial } from "./dial.js";
import { el, fromTemplate, setOptions } from "./dom.js";
import { explain } from "./explain.js";
import { fixed } from "./numbers.js";
import { voteButtons } from "./votes.js";

export class Arm {
  #part;
  #fixed = null;

  /** `changed` is called when the arm asks for something else, `removed` when it is to go. */
  constructor(label, models, { changed, removed }) {
    this.label = label;
    this.models = models;
    this.element = fromTemplate("arm-template");
    this.#part = (name) => this.element.querySelector(`[data-part="${name}"]`);
    this.select = this.#part("model");
    this.select.id = `arm-${label}-model`;
    this.#part("model-label").htmlFor = this.select.id;
    this.dial = new Dial(this.#part("dial"), `arm-${label}-dial`, changed);
    this.select.addEventListener("change", () => {
      this.#fixed = null;
      this.dial.setModel(this.models.get(this.select.value));
      changed();
    });
    this.#part("remove").addEventListener("click", removed);
    this.rename(label);
  }

  /** Ask this model at this place on its dial; `others` are mix and decode, as an experiment's arm has them. */
  set(model, descriptiveness = null, others = null) {
    setOptions(this.select, [...this.models.keys()].map((id) => [id, id]), model);
    this.#fixed = others;
    this.dial.setModel(this.models.get(this.select.value), descriptiveness);
    if (others) this.dial.enabled = !others.mix;
  }

  rename(label) {
    this.label = label;
    this.#part("title").textContent = label;
    this.element.setAttribute("aria-label", `Arm ${label}`);
    this.#part("remove").setAttribute("aria-label", `Remove arm ${label}`);
  }

  set removable(on) {
    this.#part("remove").hidden = !on;
  }

  /** As `/v1/compare` takes it. */
  get request() {
    const { mix, decode } = this.#fixed ?? {};
    const request = { label: this.label, model: this.select.value };
    if (mix) request.mix = mix;
    else if (this.dial.value !== null) request.descriptiveness = this.dial.value;
    if (decode) request.decode = decode;
    return request;
  }

  /** What is asked, for people: votes are counted by it. */
  get setting() {
    const { model, descriptiveness, mix, decode } = this.request;
    const place = descriptiveness === undefined ? "" : ` at ${fixed(descriptiveness)}`;
    return `${model}${place}${mix ? ` ${JSON.stringify(mix)}` : ""}${decode ? ` ${JSON.stringify(decode)}` : ""}`;
  }

  show(result, { best, vote, tally }) {
    if (result.error || !result.captions?.length) {
      const { happened, todo } = explain({ code: result.error?.code ?? "odd_answer" });
      this.#part("answer").replaceChildren(el("p", { class: "arm-caption" }, `${happened} ${todo}`));
      return;
    }
    const setting = this.setting;
    const said = el("p", { class: "quiet tally" }, told(tally(setting)));
    const cast = async (value) => {
      await vote(value, setting);
      said.textContent = told(tally(setting));
    };
    const parts = [
      el("p", { class: "arm-caption" }, result.captions[0].text),
      best && el("p", { class: "chip" }, "highest CLIPScore"),
      el("dl", { class: "facts" }, ...facts(result)),
      el("p", { class: "quiet" }, remarks(result).join(" ")),
      voteButtons(`arm ${this.label}`, cast),
      said,
    ];
    this.#part("answer").replaceChildren(...parts.filter(Boolean));
    this.stale = false;
  }

  clear() {
    this.#part("answer").replaceChildren();
    this.stale = false;
  }

  /** Whether the caption shown is of an earlier setting. */
  set stale(on) {
    this.#part("answer").classList.toggle("stale", on);
  }
}

const told = ({ up, down }) => (up + down ? `${up} good, ${down} poor with this setting` : "");
