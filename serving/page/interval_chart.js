// Intervals as inline SVG, all rows of a chart on one scale. Lengths are percentages: they follow the width of the page.

import { svg } from "./dom.js";

const EDGE = 0.06;

/** The scale that holds these values with a little room: (value) => percent of the width. */
export function scaleOf(values) {
  const finite = values.filter((value) => typeof value === "number" && Number.isFinite(value));
  const low = Math.min(...finite);
  const high = Math.max(...finite);
  const span = high - low || Math.abs(high) || 1;
  const at = (value) => 100 * (EDGE + ((1 - 2 * EDGE) * (value - low)) / span);
  return high > low ? at : () => 50;
}

/**
 * One row: a point, a thick interval and a thin wide one, and where zero is; each may be null.
 * @param {string} spoken what the drawing says, for who cannot see it
 */
export function intervalRow(at, { point = null, narrow = null, wide = null, zero = false }, spoken) {
  const line = (interval, kind) =>
    interval && svg("line", { class: kind, x1: percent(at(interval[0])), x2: percent(at(interval[1])), y1: "50%", y2: "50%" });
  const ends = wide && wide.map((end) => svg("line", { class: "wide", x1: percent(at(end)), x2: percent(at(end)), y1: "32%", y2: "68%" }));
  return svg(
    "svg",
    { class: "interval", role: "img", "aria-label": spoken },
    zero && svg("line", { class: "zero", x1: percent(at(0)), x2: percent(at(0)), y1: "0%", y2: "100%" }),
    line(wide, "wide"),
    ...(ends || []),
    line(narrow, "narrow"),
    typeof point === "number" && svg("circle", { class: "point", cx: percent(at(point)), cy: "50%", r: "5" }),
  );
}

const percent = (value) => `${value.toFixed(2)}%`;
