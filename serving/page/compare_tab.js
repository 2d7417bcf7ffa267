// The second tab: the same picture through up to four arms side by side, and votes on what they say.

import { Trouble, base64, isAbort, postJson } from "./api.js";
import { Arm } from "./arm.js";
import { byId, setOptions } from "./dom.js";
import { clearTrouble, showTrouble } from "./explain.js";
import { addWell } from "./picture_well.js";

const LABELS = ["A", "B", "C", "D"];
const FEWEST = 2;
const PAGE_ONLY = "Votes here are kept on this page only and forgotten when you reload it.";
const UNSEEN = "An experiment counts what people say who see one arm only: take part in it under Caption, More.";

export class CompareTab {
  #arms = [];
  #models = new Map();
  #experiments = new Map();
  #running = null;
  #asked = "";

  constructor(pictures, votes) {
    this.pictures = pictures;
    this.votes = votes;
    addWell(byId("compare-well"), pictures);
    byId("compare-run").addEventListener("click", () => this.run());
    byId("arm-add").addEventListener("click", () => this.#addArm(this.#nextSetting()));
    byId("compare-experiment").addEventListener("change", () => this.#reset());
    pictures.addEventListener("change", () => {
      this.#stop();
      clearTrouble(byId("compare-trouble"));
      this.#arms.forEach((arm) => arm.clear());
      this.#update();
    });
    pictures.addEventListener("trouble", (event) => showTrouble(byId("compare-trouble"), event.detail));
  }

  setModels(models) {
    this.#models = new Map(models.map((model) => [model.id, model]));
    this.#reset();
  }

  setExperiments(experiments) {
    this.#experiments = new Map(experiments.map((experiment) => [experiment.name, experiment]));
    byId("compare-experiment-row").hidden = !experiments.length;
    setOptions(byId("compare-experiment"), [["", "my own"], ...experiments.map(({ name }) => [name, `of the experiment ${name}`])]);
    this.#tellWhereVotesGo();
  }

  async run() {
    const picture = this.pictures.current;
    if (!picture) return;
    this.#stop();
    const mine = (this.#running = new AbortController());
    this.#busy(true);
    const arms = [...this.#arms];
    const requests = arms.map((arm) => arm.request);
    try {
      const image = { base64: await base64(picture.file) };
      const answer = await postJson("v1/compare", { images: [image], arms: requests }, mine.signal);
      if (mine !== this.#running) return;
      clearTrouble(byId("compare-trouble"));
      this.#asked = JSON.stringify(requests);
      this.#show(answer, arms);
    } catch (error) {
      if (isAbort(error) || mine !== this.#running) return;
      showTrouble(byId("compare-trouble"), error, () => this.run());
    }
    this.#running = null;
    this.#busy(false);
  }

  #show(answer, arms) {
    const byLabel = new Map((answer.arms ?? []).map((arm) => [arm.label, arm.results?.[0]]));
    if (arms.some((arm) => !byLabel.get(arm.label))) throw new Trouble("odd_answer");
    const scoreOf = (result) => result.captions?.[0]?.clip_score ?? -Infinity;
    const best = Math.max(...[...byLabel.values()].map(scoreOf));
    const alone = [...byLabel.values()].filter((result) => scoreOf(result) === best).length === 1;
    for (const arm of arms) {
      const result = byLabel.get(arm.label);
      const { name = null, arm: assigned = arm.label } = result.experiment ?? {};
      const target = { request_id: answer.id, index: 0, arm: assigned, experiment: name };
      arm.show(result, {
        best: alone && scoreOf(result) === best,
        vote: (value, setting) => this.#vote({ ...target, setting }, value),
        tally: (setting) => this.votes.tally(setting),
      });
    }
    const read = arms.map((arm) => `${arm.label}: ${byLabel.get(arm.label).captions?.[0]?.text ?? "no caption"}.`);
    byId("compare-said").textContent = read.join(" ");
    this.#update();
  }

  async #vote(target, value) {
    const said = byId("vote-said");
    try {
      await this.votes.cast(target, value);
      said.textContent = target.experiment ? `Thank you. Counted in the experiment ${target.experiment}.` : "Thank you. Kept on this page.";
    } catch (error) {
      said.textContent = "";
      showTrouble(byId("compare-trouble"), error);
    }
  }

  /** The arms to begin with: both ends of a dial where there is one, else different models; or an experiment's. */
  #reset() {
    this.#stop();
    this.#arms.forEach((arm) => arm.element.remove());
    this.#arms = [];
    const experiment = this.#experiments.get(byId("compare-experiment").value);
    if (experiment) {
      for (const arm of (experiment.arms ?? []).slice(0, LABELS.length)) {
        this.#addArm([arm.model ?? this.#defaultModel()?.id, arm.descriptiveness ?? null, arm], arm.label);
      }
    } else {
      while (this.#models.size && this.#arms.length < FEWEST) this.#addArm(this.#nextSetting());
    }
    this.#tellWhereVotesGo();
  }

  #addArm([model, descriptiveness, others = null], label = LABELS[this.#arms.length]) {
    const arm = new Arm(label, this.#models, {
      changed: () => this.#update(),
      removed: () => this.#removeArm(arm),
    });
    this.#arms.push(arm);
    byId("arms").append(arm.element);
    arm.set(model, descriptiveness, others);
    this.#update();
  }

  #removeArm(arm) {
    this.#arms = this.#arms.filter((other) => other !== arm);
    arm.element.remove();
    this.#arms.forEach((left, number) => left.rename(LABELS[number]));
    this.#asked = ""; // the labels have moved
    this.#update();
    byId("arm-add").focus();
  }

  /** Model and place of one more arm: what none of the others asks yet. */
  #nextSetting() {
    const taken = new Set(this.#arms.map((arm) => arm.setting));
    const dialled = [...this.#models.values()].find((model) => model.spectrum);
    const places = dialled ? [0, 1, 0.5].map((place) => [dialled.id, place]) : [];
    const plain = [...this.#models.values()].filter((model) => model !== dialled).map((model) => [model.id, null]);
    const free = [...places.slice(0, 2), ...plain, ...places.slice(2)].find(([id, place]) => {
      const spectrum = this.#models.get(id).spectrum;
      return !taken.has(spectrum ? `${id} at ${(place ?? spectrum.default).toFixed(2)}` : id);
    });
    return free ?? [this.#defaultModel().id, null];
  }

  #defaultModel() {
    const models = [...this.#models.values()];
    return models.find((model) => model.default) ?? models[0];
  }

  #update() {
    const fixed = byId("compare-experiment").value !== "";
    byId("arm-add").hidden = fixed || this.#arms.length >= LABELS.length;
    this.#arms.forEach((arm) => (arm.removable = !fixed && this.#arms.length > FEWEST));
    const stale = this.#asked !== JSON.stringify(this.#arms.map((arm) => arm.request));
    this.#arms.forEach((arm) => (arm.stale = stale));
    byId("compare-run").disabled = !this.pictures.current || this.#arms.length < FEWEST;
    byId("compare-hint").textContent = this.pictures.current ? "" : "Choose a picture first.";
  }

  #tellWhereVotesGo() {
    byId("vote-note").textContent = this.#experiments.size ? `${PAGE_ONLY} ${UNSEEN}` : PAGE_ONLY;
  }

  #stop() {
    this.#running?.abort();
    this.#running = null;
    this.#busy(false);
  }

  #busy(on) {
    byId("arms").setAttribute("aria-busy", String(on));
    byId("arms").classList.toggle("busy", on);
    byId("compare-run").textContent = on ? "Comparing…" : "Compare";
  }
}
