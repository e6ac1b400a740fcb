// The run of an agent that another run calls, below its call: live where it goes on. Its own calls of agents stay folded.

import { RunView } from "../answer/runview.js";
import { read } from "../net/api.js";
import { follow } from "../net/follow.js";
import { atNextFrame } from "../next_frame.js";

/** A node that shows the run, until `signal` ends it. */
export function openRun(id, signal) {
  const path = `/runs/${encodeURIComponent(id)}`;
  const view = new RunView("", { load: (query) => read(`${path}?${query}`, { signal }) });
  view.id = id;
  view.node.classList.add("called-run");
  let drawing = false;
  const draw = () => {
    drawing = false;
    view.draw();
  };
  follow({
    place: () => [`${path}/stream?reasoning=true&${view.seq ? `after=${view.seq}` : "snapshot=true"}`, {}],
    hear: ({ data }) => {
      view.apply(JSON.parse(data));
      if (!drawing) atNextFrame(draw);
      drawing = true;
    },
    wanted: () => !view.ended && !signal.aborted,
    say: (words) => (view.note.textContent = words),
    signal,
  });
  return view.node;
}
