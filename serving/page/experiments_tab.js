// The third tab: every experiment of this server and what came of it so far.

import { getJson, isAbort } from "./api.js";
import { byId, el } from "./dom.js";
import { clearTrouble, showTrouble } from "./explain.js";
import { experimentView } from "./experiment_view.js";

/** The definitions of the experiments that run; none where the server knows of no experiments at all. */
export async function listExperiments(signal) {
  try {
    return (await getJson("v1/experiments", signal)).data ?? [];
  } catch (error) {
    if (error.status === 404) return [];
    throw error;
  }
}

export class ExperimentsTab {
  #running = null;

  constructor() {
    byId("experiments-refresh").addEventListener("click", () => this.load());
  }

  async load() {
    this.#running?.abort();
    const mine = (this.#running = new AbortController());
    const list = byId("experiments-list");
    list.setAttribute("aria-busy", "true");
    try {
      const experiments = await listExperiments(mine.signal);
      const path = ({ name }) => `v1/experiments/${encodeURIComponent(name)}`;
      const results = await Promise.all(experiments.map((experiment) => getJson(path(experiment), mine.signal)));
      const views = experiments.map((experiment, number) => experimentView(experiment, results[number].results ?? results[number]));
      list.replaceChildren(...(views.length ? views : [none()]));
      clearTrouble(byId("experiments-trouble"));
      byId("experiments-when").textContent = `As of ${new Date().toLocaleTimeString()}`;
    } catch (error) {
      if (isAbort(error)) return;
      showTrouble(byId("experiments-trouble"), error, () => this.load());
    }
    if (mine === this.#running) list.setAttribute("aria-busy", "false");
  }
}

function none() {
  return el(
    "div",
    { class: "panel blank" },
    el("h3", {}, "No experiments on this server"),
    el("p", {}, "An experiment gives different captions to different people and tells which are better. Whoever runs the server can define one."),
  );
}
