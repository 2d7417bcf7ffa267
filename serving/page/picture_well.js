// Where a picture is chosen and seen. Each tab has one; they show the same picture.

import { fromTemplate } from "./dom.js";
import { megabytes } from "./numbers.js";

/** Fill `place` with a well that is bound to the pictures. */
export function addWell(place, pictures) {
  const well = fromTemplate("well-template");
  const part = (name) => well.querySelector(`[data-part="${name}"]`);
  const [image, input, caption] = [part("image"), part("input"), part("name")];
  const id = `${place.id}-input`;
  input.id = id;
  part("choose").htmlFor = id;
  part("limit").textContent = `up to ${megabytes(pictures.max_bytes)}`;

  input.addEventListener("change", () => {
    const [file] = input.files;
    if (file) pictures.choose(file);
    input.value = ""; // so that the same file can be chosen again
  });
  part("example").addEventListener("click", () => pictures.chooseExample());
  image.addEventListener("load", () => well.classList.remove("unseen"));
  image.addEventListener("error", () => well.classList.add("unseen"));
  pictures.addEventListener("change", () => {
    const { url, name, file } = pictures.current;
    well.classList.remove("empty", "unseen");
    image.hidden = false;
    image.src = url;
    image.alt = `Your picture: ${name}`;
    caption.textContent = `${name} · ${megabytes(file.size)}`;
    part("choose-text").textContent = "Choose another";
  });
  place.append(well);
}
