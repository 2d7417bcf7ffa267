// One experiment as people read it: a table of its arms, and for each pair what can be said so far.

import { el } from "./dom.js";
import { intervalRow, scaleOf } from "./interval_chart.js";
import { duration, fixed, signed, whole } from "./numbers.js";

/** The whole of an experiment; `results` may lack anything. */
export function experimentView(definition, results) {
  const arms = results.arms ?? [];
  const pairs = results.pairs ?? [];
  const min_units = results.min_units;
  return el(
    "article",
    { class: "panel experiment", "data-experiment": definition.name },
    el("h3", {}, definition.name),
    el("p", { class: "quiet" }, arms.length ? `${whole(total(arms, "images"))} pictures, ${whole(total(arms, "units"))} units` : "No results yet."),
    arms.length ? armsTable(arms, definition.arms ?? []) : null,
    pairs.length ? el("h4", {}, "Which arm is better?") : null,
    ...pairs.length ? pairsOf(pairs, min_units) : [],
  );
}

function armsTable(arms, defined) {
  const at = scaleOf(arms.flatMap((arm) => [arm.clip_score, ...(arm.clip_score_interval ?? [])]));
  const heads = ["Arm", "Units", "Pictures", "CLIPScore, 95 %", "Words", "p50", "p95", "Votes", "Not scored"];
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results of each arm" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, ...arms.map((arm) => armRow(arm, defined.find((it) => it.label === arm.label), at))),
    ),
  );
}

function armRow(arm, defined, at) {
  const interval = arm.clip_score_interval ?? null;
  const spoken = `${fixed(arm.clip_score, 3)}${interval ? `, from ${fixed(interval[0], 3)} to ${fixed(interval[1], 3)}` : ""}`;
  const up = arm.votes_up ?? 0;
  const down = arm.votes_down ?? 0;
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, arm.label, el("span", { class: "quiet" }, setting(defined))),
    el("td", {}, whole(arm.units)),
    el("td", {}, whole(arm.images)),
    el(
      "td",
      { class: "drawn" },
      el("span", { class: "figure" }, fixed(arm.clip_score, 3)),
      typeof arm.clip_score === "number" ? intervalRow(at, { point: arm.clip_score, narrow: interval }, spoken) : null,
    ),
    el("td", {}, fixed(arm.words, 1)),
    el("td", {}, duration(arm.latency_p50_ms)),
    el("td", {}, duration(arm.latency_p95_ms)),
    el("td", { "aria-label": `${up} good, ${down} poor` }, `↑ ${whole(up)}  ↓ ${whole(down)}`),
    el("td", {}, whole(arm.missing)),
  );
}

function pairsOf(pairs, min_units) {
  const at = scaleOf([0, ...pairs.flatMap((pair) => [pair.effect, ...(pair.welch_interval ?? []), ...(pair.confidence_sequence ?? [])])]);
  return [
    el("ul", { class: "pairs" }, ...pairs.map((pair) => pairRow(pair, at, min_units))),
    el(
      "p",
      { class: "quiet" },
      "Thick: the 95 % interval if you look once. Thin: the interval that stays valid however often you look; a verdict comes when it leaves zero",
      min_units ? ` and each arm has ${whole(min_units)} scored units.` : ".",
    ),
  ];
}

function pairRow(pair, at) {
  const told = `${pair.a} less ${pair.b}: ${signed(pair.effect)}`;
  const sequence = range(pair.confidence_sequence);
  return el(
    "li",
    { class: "pair" },
    el("p", { class: "pair-names" }, pair.a, el("span", { class: "quiet" }, " less "), pair.b),
    intervalRow(at, { point: pair.effect, narrow: pair.welch_interval, wide: pair.confidence_sequence, zero: true }, `${told}, ${sequence}`),
    el("p", {}, el("span", { class: "figure" }, signed(pair.effect)), el("span", { class: "quiet" }, ` ${sequence}`)),
    verdict(pair),
  );
}

function verdict({ verdict: found, a, b }) {
  const winner = { "a better": a, "b better": b }[found];
  return el("p", { class: winner ? "chip" : "chip open" }, winner ? `${winner} is better` : "undecided so far");
}

function setting(defined) {
  if (!defined) return "";
  const place = typeof defined.descriptiveness === "number" ? ` at ${fixed(defined.descriptiveness)}` : "";
  const share = typeof defined.weight === "number" ? `, weight ${defined.weight}` : "";
  return `${defined.model ?? "default model"}${place}${share}`;
}

const range = (interval) => (interval ? `${signed(interval[0])} to ${signed(interval[1])}` : "no interval yet");
const total = (arms, field) => arms.reduce((found, arm) => found + (arm[field] ?? 0), 0);
