// One experiment as people read it: a table of its arms, and for each pair what can be said so far.

import { el } from "./dom.js";
import { intervalRow, scaleOf } from "./interval_chart.js";
import { counted, duration, fixed, signed, whole } from "./numbers.js";

/** The whole of an experiment; `results` may lack anything. */
export function experimentView(definition, results) {
  const arms = results.arms ?? [];
  const pairs = results.pairs ?? [];
  return el(
    "article",
    { class: "panel experiment", "data-experiment": definition.name },
    el("h3", {}, definition.name),
    el("p", { class: "quiet" }, arms.length ? `${counted(total(arms, "images"), "picture")}, ${counted(total(arms, "units"), "unit")}` : "No results yet."),
    arms.length ? armsTable(arms, definition.arms ?? []) : null,
    pairs.length ? el("h4", {}, "Which arm is better?") : null,
    ...(pairs.length ? pairsOf(pairs, results.min_units) : []),
  );
}

const HEADS = ["Arm", "Units", "Pictures", "CLIPScore, 95 %", "Words", "Time p50", "Time p95", "Votes", "Not scored"];

/** The roles are said outright: on a phone the rows are laid out as cards, which would take them away. */
function armsTable(arms, defined) {
  const at = scaleOf(arms.flatMap((arm) => [arm.clip_score, ...(arm.clip_score_interval ?? [])]));
  const head = (text, number) => el("th", { scope: "col", role: "columnheader", class: number === 3 ? "drawn" : null }, text);
  const row = (arm) => armRow(arm, defined.find((it) => it.label === arm.label), at);
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      { role: "table", "aria-label": "Results of each arm" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...HEADS.map(head))),
      el("tbody", { role: "rowgroup" }, ...arms.map(row)),
    ),
  );
}

function armRow(arm, defined, at) {
  const interval = arm.clip_score_interval ?? null;
  const spoken = `${fixed(arm.clip_score, 3)}${interval ? `, from ${fixed(interval[0], 3)} to ${fixed(interval[1], 3)}` : ""}`;
  const up = arm.votes_up ?? 0;
  const down = arm.votes_down ?? 0;
  const drawn = typeof arm.clip_score === "number" ? intervalRow(at, { point: arm.clip_score, narrow: interval }, spoken) : null;
  const cells = [
    [whole(arm.units)],
    [whole(arm.images)],
    [el("span", { class: "figure" }, fixed(arm.clip_score, 3)), drawn],
    [fixed(arm.words, 1)],
    [duration(arm.latency_p50_ms)],
    [duration(arm.latency_p95_ms)],
    [el("span", { role: "img", "aria-label": `${up} good, ${down} poor` }, `↑ ${whole(up)}  ↓ ${whole(down)}`)],
    [whole(arm.missing)],
  ];
  const cell = (parts, number) => el("td", { role: "cell", class: number === 2 ? "drawn" : null, "data-head": HEADS[number + 1] }, ...parts);
  const name = el("th", { scope: "row", role: "rowheader" }, arm.label, el("span", { class: "quiet" }, setting(defined)));
  return el("tr", { role: "row" }, name, ...cells.map(cell));
}

function pairsOf(pairs, min_units) {
  const at = scaleOf([0, ...pairs.flatMap((pair) => [pair.effect, ...(pair.welch_interval ?? []), ...(pair.confidence_sequence ?? [])])]);
  return [
    el("ul", { class: "pairs" }, ...pairs.map((pair) => pairRow(pair, at))),
    el(
      "p",
      { class: "quiet" },
      "Thick: the 95 % interval if you look once. Thin: the interval that stays valid however often you look; a verdict comes when it leaves zero",
      min_units ? ` and each arm has ${whole(min_units)} scored units.` : ".",
    ),
  ];
}

function pairRow(pair, at) {
  const told = `${pair.a} minus ${pair.b}: ${signed(pair.effect)}`;
  const sequence = range(pair.confidence_sequence);
  return el(
    "li",
    { class: "pair" },
    el("p", { class: "pair-names" }, pair.a, el("span", { class: "quiet" }, " minus "), pair.b),
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
