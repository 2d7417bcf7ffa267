// Votes on captions: to the experiment that a caption belongs to, else in this page's memory only.

import { postJson } from "./api.js";
import { el } from "./dom.js";

const UNIT = "limner-unit";

/** A random id of this browser: an experiment shows it the same arm every time. */
export function unit() {
  try {
    let id = localStorage.getItem(UNIT);
    if (!id) localStorage.setItem(UNIT, (id = randomId()));
    return id;
  } catch {
    return (passing ??= randomId()); // storage is forbidden here: until the page is reloaded
  }
}

let passing;

function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Votes {
  #values = new Map();

  /** Keep a vote and, where the caption belongs to an experiment, send it. Raises a Trouble; the page keeps it anyway. */
  async cast({ request_id, index, arm, experiment, setting }, value) {
    this.#values.set(`${request_id}/${index}/${arm}`, { setting, value });
    if (experiment) await postJson(`v1/experiments/${encodeURIComponent(experiment)}/votes`, { request_id, index, arm, value });
  }

  tally(setting) {
    const values = [...this.#values.values()].filter((vote) => vote.setting === setting);
    return { up: values.filter((vote) => vote.value === 1).length, down: values.filter((vote) => vote.value === -1).length };
  }
}

/** A pair of buttons; `cast(value)` is called with 1 or -1. */
export function voteButtons(name, cast) {
  const button = (value, text, sign) =>
    el(
      "button",
      {
        type: "button",
        class: "vote",
        "aria-pressed": "false",
        "aria-label": `${text}: ${name}`,
        "data-vote": String(value),
        click: (event) => {
          for (const other of event.currentTarget.parentElement.children) {
            other.setAttribute("aria-pressed", String(other === event.currentTarget));
          }
          cast(value);
        },
      },
      el("span", { "aria-hidden": "true" }, sign),
      ` ${text}`,
    );
  return el("div", { class: "votes", role: "group", "aria-label": `Your vote on ${name}` }, button(1, "Good", "↑"), button(-1, "Poor", "↓"));
}
