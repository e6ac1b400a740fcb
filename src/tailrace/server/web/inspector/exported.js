// The inspector in a file of its own: the data stands in the document, and nothing is fetched.

import { titleOf } from "../conversation/question_files.js";
import { make } from "./dom.js";
import { InspectorView } from "./view.js";

const { runs } = JSON.parse(document.getElementById("runs").textContent);
const root = make("main");
root.id = "inspector";
const body = make("div", "inspector-body");
root.append(body);
document.body.append(root);
document.title = `${titleOf(runs[0].timeline.question) || runs[0].timeline.id} · Tailrace`;
const view = new InspectorView(body, runs.length);
runs.forEach(({ timeline }, index) => view.show(index, timeline));
runs.forEach(({ events }, index) => view.load(index, events));
