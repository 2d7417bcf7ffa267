// The first tab: one picture, one dial, and the caption that follows it.

import { Trouble, isAbort, postPicture } from "./api.js";
import { alternatives, facts, freshWords, remarks, stages } from "./caption_facts.js";
import { Dial } from "./dial.js";
import { byId, debounced, setOptions } from "./dom.js";
import { clearTrouble, showTrouble } from "./explain.js";
import { addWell } from "./picture_well.js";
import { unit, voteButtons } from "./votes.js";

const WAIT_MS = 140;
const MOST_KEPT = 300;

export class CaptionTab {
  #answers = new Map();
  #models = new Map();
  #running = null;
  #shown = null;

  constructor(pictures, votes) {
    this.pictures = pictures;
    this.votes = votes;
    addWell(byId("caption-well"), pictures);
    const soon = debounced(WAIT_MS, () => this.update());
    this.dial = new Dial(byId("caption-dial"), "dial", soon);
    byId("model").addEventListener("change", () => {
      this.#follow();
      this.update();
    });
    for (const id of ["num-captions", "rerank", "experiment"]) byId(id).addEventListener("change", () => this.update());
    byId("experiment").addEventListener("change", () => this.#follow());
    byId("copy").addEventListener("click", () => this.#copy());
    pictures.addEventListener("change", () => {
      this.#clear();
      this.update();
    });
    pictures.addEventListener("trouble", (event) => showTrouble(byId("caption-trouble"), event.detail));
  }

  setModels(models) {
    this.#models = new Map(models.map((model) => [model.id, model]));
    const first = models.find((model) => model.default) ?? models[0];
    setOptions(byId("model"), models.map((model) => [model.id, model.id]), first?.id);
    this.#follow();
    this.update();
  }

  setExperiments(experiments) {
    byId("experiment-row").hidden = !experiments.length;
    setOptions(byId("experiment"), [["", "no: I choose the model"], ...experiments.map(({ name }) => [name, name])]);
  }

  /** Show the caption for what is chosen now: a kept one at once, another as soon as it comes. */
  async update() {
    const picture = this.pictures.current;
    if (!picture || !this.#models.size) return;
    const request = this.#request();
    const key = JSON.stringify([picture.id, request]);
    this.#running?.abort();
    this.#running = null;
    const kept = this.#answers.get(key);
    if (kept) return this.#show(kept);
    const mine = (this.#running = new AbortController());
    this.#busy(true);
    try {
      const answer = await postPicture("v1/captions", picture.file, request, mine.signal);
      if (mine !== this.#running) return;
      this.#keep(key, answer);
      this.#show(answer);
    } catch (error) {
      if (isAbort(error) || mine !== this.#running) return;
      this.#clear();
      showTrouble(byId("caption-trouble"), error, () => this.update());
    }
    this.#running = null;
    this.#busy(false);
  }

  #request() {
    const request = { num_captions: Number(byId("num-captions").value) };
    const experiment = byId("experiment").value;
    if (experiment) return { ...request, experiment, unit: unit() };
    if (byId("rerank").checked) request.decode = { rerank: "clip_score" };
    request.model = byId("model").value;
    if (this.dial.value !== null) request.descriptiveness = this.dial.value;
    return request;
  }

  #follow() {
    const model = this.#models.get(byId("model").value);
    const assigned = byId("experiment").value !== "";
    byId("model").disabled = assigned;
    byId("rerank").disabled = assigned;
    byId("model-about").textContent = assigned ? "The experiment chooses how the caption is made." : (model?.description ?? "");
    this.dial.setModel(model);
    this.dial.enabled = !assigned;
  }

  #show(answer) {
    const [result] = answer.results ?? [];
    if (!result?.captions?.length) {
      this.#clear();
      showTrouble(byId("caption-trouble"), new Trouble(result?.error?.code ?? "odd_answer"), () => this.update());
      return this.#busy(false);
    }
    clearTrouble(byId("caption-trouble"));
    const { text } = result.captions[0];
    if (text !== this.#shown) byId("caption").replaceChildren(...freshWords(text, this.#shown));
    this.#shown = text;
    byId("caption-output").dataset.place = result.descriptiveness?.toFixed(2) ?? "";
    byId("facts").replaceChildren(...facts(result, answer.timing_ms));
    byId("stages").textContent = stages(answer.timing_ms ?? {});
    byId("remarks").textContent = remarks(result).join(" ");
    const others = alternatives(result);
    byId("alternatives").hidden = !others.length;
    byId("alternatives-list").replaceChildren(...others);
    this.#offerVote(answer, result);
    byId("caption-start").hidden = true;
    byId("caption-answer").hidden = false;
    this.#busy(false);
  }

  #offerVote(answer, { experiment }) {
    const place = byId("caption-vote");
    place.replaceChildren();
    byId("caption-vote-said").textContent = "";
    if (!experiment) return;
    const vote = { request_id: answer.id, index: 0, arm: experiment.arm, experiment: experiment.name, setting: experiment.arm };
    place.append(
      voteButtons("this caption", async (value) => {
        try {
          await this.votes.cast(vote, value);
          byId("caption-vote-said").textContent = `Thank you. Counted in the experiment ${experiment.name}.`;
        } catch (error) {
          showTrouble(byId("caption-trouble"), error);
        }
      }),
    );
  }

  #keep(key, answer) {
    this.#answers.set(key, answer);
    if (this.#answers.size > MOST_KEPT) this.#answers.delete(this.#answers.keys().next().value);
  }

  #clear() {
    this.#shown = null;
    clearTrouble(byId("caption-trouble"));
    byId("caption").replaceChildren();
    byId("caption-answer").hidden = true;
    byId("caption-start").hidden = this.pictures.current !== null;
  }

  #busy(on) {
    byId("caption-output").setAttribute("aria-busy", String(on));
    byId("caption-output").classList.toggle("busy", on);
  }

  async #copy() {
    const said = await copyText(byId("caption").textContent);
    byId("copy-said").textContent = said ? "Copied." : "Select the caption and copy it by hand.";
    setTimeout(() => (byId("copy-said").textContent = ""), 3000);
  }
}

/** Whether the text is on the clipboard now; the modern way exists on https and localhost only. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(byId("caption"));
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    const done = document.execCommand("copy");
    if (done) selection.removeAllRanges();
    return done;
  }
}
