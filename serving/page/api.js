// Asks the server. Whatever goes wrong is a Trouble; an abort stays an AbortError.

import { KEY_WANTED, hasKey, keyHeaders } from "./key.js";

export class Trouble extends Error {
  constructor(code, { detail = "", status = 0, retryAfter_s = null } = {}) {
    super(detail || code);
    Object.assign(this, { code, detail, status, retryAfter_s });
  }
}

export const isAbort = (error) => error?.name === "AbortError";

export async function getJson(path, signal) {
  return asJson(await ask(path, { signal, headers: { accept: "application/json" } }));
}

export async function getText(path, signal) {
  return (await ask(path, { signal })).text();
}

export async function postJson(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return asJson(await ask(path, { method: "POST", headers, body: JSON.stringify(body), signal }));
}

/** A picture and what is asked about it, as a form: the picture travels as it is. */
export async function postPicture(path, file, request, signal) {
  const form = new FormData();
  form.append("images", file);
  form.append("request", JSON.stringify(request));
  return asJson(await ask(path, { method: "POST", body: form, signal }));
}

/** The base64 of a file, for requests that are JSON. */
export async function base64(file) {
  const bytes = new Uint8Array(await readable(file));
  const step = 0x8000; // as many arguments as every browser takes
  let text = "";
  for (let start = 0; start < bytes.length; start += step) text += String.fromCharCode(...bytes.subarray(start, start + step));
  return btoa(text);
}

async function readable(file) {
  try {
    return await file.arrayBuffer();
  } catch {
    throw new Trouble("file_gone");
  }
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...options.headers, ...keyHeaders() } });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new Trouble("no_answer");
  }
  if (!response.ok) throw await trouble(response);
  return response;
}

async function asJson(response) {
  try {
    return await response.json();
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new Trouble("odd_answer", { status: response.status });
  }
}

async function trouble(response) {
  const { status } = response;
  const after = Number.parseFloat(response.headers.get("retry-after"));
  const retryAfter_s = Number.isFinite(after) ? after : null;
  let problem = {};
  try {
    problem = await response.json();
  } catch (error) {
    if (isAbort(error)) throw error; // anything else: a proxy's own text, which says nothing to people
  }
  let { code = `http_${status}`, detail = "" } = problem ?? {};
  if (code === "unauthorized") {
    if (hasKey()) code = "unknown_key";
    document.dispatchEvent(new Event(KEY_WANTED));
  }
  return new Trouble(code, { detail, status, retryAfter_s });
}
