// Reads the Prometheus text format, as far as /metrics uses it.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES = { "\\n": "\n", '\\"': '"', "\\\\": "\\" };
const NUMBERS = { "+Inf": Infinity, "-Inf": -Infinity, NaN: NaN };

/** [{name, labels, value}] in the order of the text. */
export function parse(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, key, value] of (found[2] ?? "").matchAll(LABEL)) labels[key] = value.replace(/\\[n"\\]/g, (it) => ESCAPES[it]);
    samples.push({ name: found[1], labels, value: NUMBERS[found[3]] ?? Number(found[3]) });
  }
  return samples;
}

/** The samples of a name whose labels are these. */
export function select(samples, name, labels = {}) {
  const wanted = Object.entries(labels);
  return samples.filter((it) => it.name === name && wanted.every(([key, value]) => it.labels[key] === value));
}

/** Their sum; null where there is none, which is not 0. */
export function sum(samples, name, labels) {
  const found = select(samples, name, labels);
  return found.length ? found.reduce((total, it) => total + it.value, 0) : null;
}

/** What was counted between two scrapes; after a restart, when counters begin anew, since that. */
export function increase(before, now, name, labels) {
  const later = sum(now, name, labels) ?? 0;
  const earlier = before ? (sum(before, name, labels) ?? 0) : 0;
  return later >= earlier ? later - earlier : later;
}

/** [[upper bound, how many are at or below it]] of a histogram, between two scrapes or since the start. */
export function buckets(before, now, name, labels) {
  const bounds = [...new Set(select(now, `${name}_bucket`, labels).map((it) => it.labels.le))];
  return bounds
    .map((le) => [NUMBERS[le] ?? Number(le), increase(before, now, `${name}_bucket`, { ...labels, le })])
    .sort((a, b) => a[0] - b[0]);
}

/** The quantile of a histogram, linear within a bucket, as Prometheus' histogram_quantile; null without observations. */
export function quantile(cumulative, share) {
  const total = cumulative.at(-1)?.[1] ?? 0;
  if (!total) return null;
  const rank = share * total;
  let lower = 0;
  let below = 0;
  for (const [upper, count] of cumulative) {
    if (count >= rank) return upper === Infinity ? lower : lower + ((upper - lower) * (rank - below)) / (count - below || 1);
    [lower, below] = [upper, count];
  }
  return lower;
}
