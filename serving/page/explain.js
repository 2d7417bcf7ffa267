// What went wrong, in words for people, and what they can do; and the place where they read it.

import { el } from "./dom.js";
import { counted } from "./numbers.js";

const ANOTHER = "Choose another picture.";

/** code: [what happened, what to do, whether the same request may succeed later] */
const EXPLANATIONS = {
  empty: ["This file is empty.", ANOTHER],
  not_an_image: ["This file is not a picture.", "Choose a photograph, for instance a JPEG, PNG or WebP file."],
  unsupported_format: ["This kind of picture cannot be read here.", "Save it as JPEG, PNG or WebP and try that."],
  truncated: ["A part of this picture is missing.", "It may not have been copied completely. Copy it again, or choose another."],
  unreadable: ["This picture cannot be read.", "It may be damaged. Open it in a picture program, save it anew and try that."],
  too_large: ["This picture is too large for the server.", "Make it smaller, or save it with fewer pixels, and try again."],
  too_small: ["This picture is too small to say anything about.", ANOTHER],
  file_gone: ["The file can no longer be read.", "It was moved or changed after you chose it. Choose it again."],
  unauthorized: ["This server asks for a key.", "Enter it at the top of the page and try again.", true],
  unknown_key: ["This server asks for a key.", "It does not know the one that was entered. Enter another at the top of the page and try again.", true],
  rate_limited: ["Your key has used up its pictures for now.", "Your picture is still here.", true],
  body_timeout: ["Sending the picture took too long.", "Try again, or use a smaller picture.", true],
  queue_full: ["The server is busy.", "Your picture is still here.", true],
  deadline_exceeded: ["The caption took too long.", "The server has much to do. Try again in a moment.", true],
  shutting_down: ["The server is about to stop.", "If it comes back, your picture is still here.", true],
  unavailable: ["The server is not ready.", "Its models may still be loading. Your picture is still here.", true],
  unknown_model: ["This model is no longer served.", "Reload the page to see which models are."],
  unknown_experiment: ["This experiment no longer runs.", "Reload the page to see which do."],
  unknown_vote_target: ["The server could not count this vote.", "It keeps no record of this caption. The vote counts on this page only."],
  unsupported_option: ["This model cannot do that.", "Choose another model, or leave the extra options as they are."],
  no_answer: ["The server does not answer.", "See that limner is running and that you are connected, then try again.", true],
  odd_answer: ["The server's answer cannot be understood.", "Something between this page and the server may have changed it.", true],
  internal_error: ["The server failed on this request.", "Try again; if it stays, whoever runs the server finds the reason in its log.", true],
};
EXPLANATIONS.body_too_large = EXPLANATIONS.too_large;

const BY_STATUS = {
  404: ["This server cannot do that.", "It may be an older version of limner."],
  413: EXPLANATIONS.too_large,
  429: EXPLANATIONS.queue_full,
  502: EXPLANATIONS.unavailable,
  503: EXPLANATIONS.unavailable,
  504: EXPLANATIONS.deadline_exceeded,
};
const OTHERWISE = ["That did not work.", "Try again, or choose another picture.", true];

/** What to tell people about a Trouble. Anything else is a fault of the page. */
export function explain(trouble) {
  const [happened, advice, retry = false] = EXPLANATIONS[trouble.code] ?? BY_STATUS[trouble.status] ?? OTHERWISE;
  const wait = trouble.retryAfter_s;
  const todo = wait ? `${advice} Try again in ${counted(Math.ceil(wait), "second")}.` : advice;
  return { happened, todo, retry };
}

/** Show a trouble in a live region, with a button where trying again makes sense. */
export function showTrouble(region, trouble, again) {
  if (!trouble.code) console.error(trouble);
  const { happened, todo, retry } = explain(trouble);
  region.replaceChildren(
    el(
      "div",
      { class: "notice" },
      el("p", { class: "notice-title" }, happened),
      el("p", {}, todo),
      retry && again ? el("button", { type: "button", class: "button", click: again }, "Try again") : null,
    ),
  );
}

export function clearTrouble(region) {
  if (region.hasChildNodes()) region.replaceChildren();
}
