// What there is to say about a caption: its score, its words, how long it took, and what was done to the picture.

import { el } from "./dom.js";
import { counted, duration, fixed, words } from "./numbers.js";

const STAGES = ["queue", "encode", "decode", "score"];

/** The facts of one result, as the rows of a <dl>; without a `timing` where several arms shared it. */
export function facts(result, timing) {
  const [best] = result.captions;
  const expected = result.expected_words;
  const rows = [
    fact("CLIPScore", fixed(best.clip_score), best.scorer ? `by ${best.scorer}` : "not scored here"),
    fact("Words", String(words(best.text)), expected ? `${fixed(expected, 0)} expected` : ""),
  ];
  if (timing) rows.push(fact("Time", duration(timing.total), "on the server"));
  return rows;
}

/** What a reader should know besides, as sentences. */
export function remarks(result) {
  const found = (result.notes ?? []).map((note) => `About the picture: ${note}.`);
  if (result.fallback) found.unshift("A concise caption took the place of one that fitted the picture badly.");
  if (result.captions[0].finish_reason === "length") found.unshift("This caption was cut at the longest length allowed.");
  return found;
}

/** The caption's words, those that the earlier one lacks in <span class="fresh">. */
export function freshWords(text, earlier) {
  if (!earlier) return [text];
  const known = new Set(plain(earlier));
  return text.split(/(\s+)/).map((piece) => (plain(piece).every((word) => known.has(word)) ? piece : el("span", { class: "fresh" }, piece)));
}

/** The other captions of a result, as list items. */
export function alternatives(result) {
  return result.captions.slice(1).map((caption) =>
    el("li", {}, caption.text, " ", el("span", { class: "quiet" }, `CLIPScore ${fixed(caption.clip_score)}, ${counted(words(caption.text), "word")}`)),
  );
}

function fact(name, value, more) {
  return el("div", { class: "fact" }, el("dt", {}, name), el("dd", {}, el("span", { class: "figure" }, value), el("span", { class: "quiet" }, more)));
}

/** Where the time went, as text. */
export function stages(timing) {
  return STAGES.filter((name) => timing[name] >= 0.05)
    .map((name) => `${name} ${duration(timing[name])}`)
    .join(" · ");
}

const plain = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
