// How numbers are written; what is unknown is a dash.

const DASH = "–";
const MINUS = "−";

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Fixed decimals, with a real minus sign. */
export function fixed(value, digits = 2) {
  if (!known(value)) return DASH;
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? MINUS + text : text;
}

/** With its sign, for differences. */
export function signed(value, digits = 3) {
  return known(value) && value > 0 && Number(value.toFixed(digits)) !== 0 ? `+${fixed(value, digits)}` : fixed(value, digits);
}

export function whole(value) {
  return known(value) ? Math.round(value).toLocaleString("en") : DASH;
}

/** Milliseconds as people say them. */
export function duration(value_ms) {
  if (!known(value_ms)) return DASH;
  if (value_ms < 10) return `${value_ms.toFixed(1)} ms`;
  return value_ms < 1000 ? `${Math.round(value_ms)} ms` : `${(value_ms / 1000).toFixed(value_ms < 10_000 ? 2 : 1)} s`;
}

export function megabytes(bytes) {
  return bytes < 1 << 20 ? `${Math.max(1, Math.round(bytes / 1024))} KiB` : `${(bytes / (1 << 20)).toFixed(1).replace(/\.0$/, "")} MiB`;
}

/** "1 word", "2 words". */
export function counted(value, noun) {
  return `${whole(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function words(text) {
  return text.split(/\s+/).filter((piece) => /[\p{L}\p{N}]/u.test(piece)).length;
}
