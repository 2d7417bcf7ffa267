// The API key of a server that asks for one: kept in this tab only, sent with every question.

export const KEY_WANTED = "limner-key-wanted";

const PLACE = "limner-key";
let key = remembered();

export function keyHeaders() {
  return key ? { "x-api-key": key } : {};
}

export const hasKey = () => Boolean(key);

/** Show the form when the server refuses for want of a key; calls back once one was entered. */
export function acceptKey(form, entered) {
  const field = form.querySelector("input");
  document.addEventListener(KEY_WANTED, () => {
    form.hidden = false;
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    key = field.value.trim().replace(/[^\x21-\x7e]/g, ""); // a header takes nothing else
    field.value = "";
    form.hidden = true;
    try {
      sessionStorage.setItem(PLACE, key);
    } catch {
      // storage is off: the key lasts until the page is loaded anew
    }
    entered();
  });
}

function remembered() {
  try {
    return sessionStorage.getItem(PLACE);
  } catch {
    return null;
  }
}
