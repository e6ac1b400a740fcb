// The images of a question: those that were attached here, and those that the server keeps.

import { make } from "../answer/dom.js";
import { ask } from "../net/api.js";

/** Shows pictures of these addresses below a question; a press shows one in its whole size. */
export function addImages(question, addresses) {
  for (const address of addresses) {
    const picture = make("img");
    picture.alt = "Attached image";
    picture.addEventListener("click", () => picture.classList.toggle("whole"));
    if (typeof address === "string") picture.src = address;
    else address.then((found) => (picture.src = found), () => picture.replaceWith("An image that cannot be shown."));
    question.append(picture);
  }
}

/** The address of an image that the server keeps: its content, since the request for it needs the key. */
export async function keptImage(runId, number) {
  const blob = await (await ask(`/runs/${encodeURIComponent(runId)}/images/${number}`)).blob();
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}
