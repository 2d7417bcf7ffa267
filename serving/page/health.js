// The strip at the foot: how much the server does, how fast and how well, from /metrics.

import { getText } from "./api.js";
import { byId, el } from "./dom.js";
import { duration, fixed, whole } from "./numbers.js";
import { buckets, increase, parse, quantile, select, sum } from "./prometheus.js";

const EVERY_MS = 5000;
const WINDOW = 12; // scrapes, a minute
const ROUTES = ["/v1/captions", "/v1/compare", "/v1/chat/completions"];

/** Refresh the strip while the page is visible. */
export function startHealth() {
  let scrapes = [];
  let timer = null;
  let asking = false;

  async function refresh() {
    if (asking) return;
    asking = true;
    try {
      const samples = parse(await getText("metrics", AbortSignal.timeout(EVERY_MS)));
      scrapes = [...scrapes, { at_s: performance.now() / 1000, samples }].slice(-WINDOW - 1);
      show(facts(scrapes));
    } catch (error) {
      scrapes = [];
      show(null, error);
    }
    asking = false;
  }

  function follow() {
    clearInterval(timer);
    timer = document.hidden ? null : setInterval(refresh, EVERY_MS);
    if (!document.hidden) refresh();
  }
  document.addEventListener("visibilitychange", follow);
  follow();
}

/** [name, value, more] of what the latest scrapes say; rates need two of them. */
export function facts(scrapes) {
  const { samples: now, at_s } = scrapes.at(-1);
  const first = scrapes.length > 1 ? scrapes[0] : null;
  const found = [];
  if (first) {
    const rate = increase(first.samples, now, "limner_captions_total") / (at_s - first.at_s);
    found.push(["Throughput", rate < 0.05 && rate > 0 ? "< 0.1" : fixed(rate, 1), "captions/s"]);
  } else {
    found.push(["Throughput", whole(sum(now, "limner_captions_total") ?? 0), "captions so far"]);
  }
  found.push(latency(first?.samples, now));
  const limit = sum(now, "limner_queue_limit_images");
  found.push(["Queue", whole(sum(now, "limner_queue_images") ?? 0), limit ? `of ${whole(limit)} pictures` : "pictures"]);
  for (const { labels, value } of select(now, "limner_clip_score_count")) {
    if (!value) continue;
    const mean = sum(now, "limner_clip_score_sum", labels) / value;
    const fallen = sum(now, "limner_clip_score_drift_alarm", { model: labels.model }) > 0;
    found.push([`CLIPScore of ${labels.model}`, fixed(mean), fallen ? "has fallen" : "on average", fallen]);
  }
  return found;
}

/** Of what was answered: a refusal takes no time. Of the last minute where something came in it, else since the start. */
function latency(before, now) {
  const name = "limner_request_duration_seconds";
  const together = (earlier) => ROUTES.map((route) => buckets(earlier, now, name, { route, status: "200" })).filter((it) => it.length).reduce(add, []);
  let found = before ? together(before) : [];
  let when = "";
  if (!found.at(-1)?.[1]) [found, when] = [together(null), " so far"];
  const p50 = quantile(found, 0.5);
  if (p50 === null) return ["Median latency", "–", "no requests yet"];
  return ["Median latency", duration(p50 * 1000), `p95 ${duration(quantile(found, 0.95) * 1000)}${when}`];
}

const add = (total, more) => (total.length ? total.map(([le, count], number) => [le, count + (more[number]?.[1] ?? 0)]) : more);

function show(found, { status } = {}) {
  const closed = status === 401;
  byId("health").classList.toggle("down", !found && !closed);
  const why = closed ? "they are shown once it knows your key" : "it does not answer, or its monitor is down";
  const rows = found ?? [["Server", "no measurements", why]];
  byId("health-facts").replaceChildren(
    ...rows.map(([name, value, more, alarm]) =>
      el("div", { class: alarm ? "alarm" : null }, el("dt", {}, name), el("dd", {}, el("span", { class: "figure" }, value), " ", el("span", { class: "quiet" }, more))),
    ),
  );
}
