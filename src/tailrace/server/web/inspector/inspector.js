// The inspector of the page: `/?run=ID` shows a run, `/?run=A&with=B` two of them. Live runs are followed.

import { link } from "../answer/dom.js";
import { startInbox } from "../approvals/inbox.js";
import { titleOf } from "../conversation/question_files.js";
import { ask, wordsOf } from "../net/api.js";
import { backoff } from "../net/follow.js";
import { withStreamSlot } from "../net/with_stream_slot.js";
import { notShown, waysBack } from "../not_shown.js";
import { make } from "./dom.js";
import { askForFork } from "./fork_form.js";
import { followEvents, loadTimeline, saveExport } from "./source.js";
import { InspectorView } from "./view.js";

const REDRAW_MS = 1000; // of the lanes of a live run
const FORKS_AMONG = 50; // the latest runs
const LIVE = new Set(["pending", "running"]);

export async function openInspector(address = new URLSearchParams(location.search)) {
  const ids = [address.get("run"), address.get("with")].filter(Boolean);
  const root = make("main");
  root.id = "inspector";
  document.body.dataset.view = "inspector";
  document.getElementById("waiting")?.remove(); // a replay asks for no approval
  document.body.append(root);
  await new Inspector(root, ids, { thinking: address.get("thinking") === "true" }).open();
}

class Inspector {
  constructor(root, ids, { thinking }) {
    this.ids = ids;
    this.thinking = thinking;
    this.status = make("p", "inspector-status");
    this.status.setAttribute("role", "status");
    this.bar = make("nav", "inspector-bar", ...waysBack(), this.status);
    this.bar.setAttribute("aria-label", "Tailrace");
    const body = make("div", "inspector-body");
    this.questions = make("div");
    root.append(this.bar, this.questions, body);
    this.view = new InspectorView(body, ids.length, { fork: (index, item) => this.fork(index, item) });
    this.runs = ids.map((id) => ({ id, timeline: null, events: [] }));
  }

  async open() {
    this.offerThinking();
    await Promise.all(this.runs.map((run, index) => this.openRun(run, index).catch((error) => this.fail(run, error))));
    startInbox(this.bar, ({ run_id: id }) => this.ids.includes(id) && this.questions);
  }

  async openRun(run, index) {
    await this.refresh(run, index);
    this.offerActions(run, index);
    this.follow(run, index);
    this.offerForks(run, index).catch(() => {}); // links beside what is shown
  }

  // ── the run ──────────────────────────────────────────────────────────────────────────────────────────────

  async refresh(run, index) {
    const began = performance.now();
    run.timeline = await loadTimeline(run.id, this);
    run.tookMs = performance.now() - began;
    this.draw(run, index);
    document.title = `${titleOf(run.timeline.question) || run.id} · Tailrace`;
  }

  draw(run, index) {
    this.view.show(index, run.timeline, lasted(run.timeline));
    const live = LIVE.has(run.timeline.status);
    if (live) run.growing ??= setInterval(() => this.view.grow(index, lasted(run.timeline)), REDRAW_MS);
    else clearInterval(run.growing);
  }

  /** Reads the log to its end, from the last event again after the connection broke or another window had its slot. */
  follow(run, index) {
    const open = new AbortController(); // as long as the page
    return withStreamSlot("stream", open.signal, (signal) => this.read(run, index, signal));
  }

  async read(run, index, signal) {
    let failures = 0;
    const ended = () => run.events.at(-1)?.type === "run_finished";
    while (!ended()) {
      try {
        await followEvents(run.id, run.events.at(-1)?.seq ?? 0, { thinking: this.thinking, signal }, (batch) => {
          failures = 0;
          this.say("");
          for (const event of batch) run.events.push(event);
          this.grown(run, index, ended());
        });
      } catch (error) {
        if (signal.aborted) return undefined;
        if (error.status && error.status < 500) return this.complain(error);
      }
      if (ended() || !LIVE.has(run.timeline.status)) break;
      this.say("Connection lost. Reconnecting…");
      await backoff(failures++, signal);
    }
    return undefined;
  }

  /** New events are in: the replay has them now, the lanes when it is their time. */
  grown(run, index, ended) {
    this.view.load(index, run.events);
    const known = run.timeline.last_seq >= run.events.at(-1).seq && !LIVE.has(run.timeline.status);
    if (known || run.refreshing) return;
    // A long log takes the server longer to fold: it is asked less often.
    const wait = ended ? 0 : Math.max(REDRAW_MS, 10 * run.tookMs);
    run.refreshing = setTimeout(async () => {
      await this.refresh(run, index).catch((error) => this.complain(error));
      run.refreshing = null;
      const last = run.events.at(-1);
      if (last.type === "run_finished" && LIVE.has(run.timeline.status)) this.grown(run, index, true);
    }, wait);
  }

  // ── what people do ───────────────────────────────────────────────────────────────────────────────────────

  offerThinking() {
    const box = make("input");
    box.type = "checkbox";
    box.checked = this.thinking;
    box.addEventListener("change", () => {
      const address = new URLSearchParams(location.search);
      if (box.checked) address.set("thinking", "true");
      else address.delete("thinking");
      location.search = address;
    });
    this.thinkingBox = make("label", "thinking", box, "Show thinking");
    this.bar.append(this.thinkingBox);
  }

  offerActions(run, index) {
    const { header } = this.view.panes[index];
    const { session, kind } = run.timeline;
    if (session && kind === "agent") header.offer("Open the conversation", `/?session=${encodeURIComponent(session)}`);
    header.offer("Export as HTML", (pressed) => {
      pressed.disabled = true;
      saveExport(run.id, this)
        .catch((error) => this.complain(error))
        .finally(() => {
          pressed.disabled = false;
        });
    });
    const alone = this.ids.length > 1;
    if (alone) header.offer("Show it alone", `/?run=${encodeURIComponent(run.id)}`);
  }

  /** Links to compare a fork with the run that it came from, both ways. */
  async offerForks(run, index) {
    if (this.ids.length > 1) return;
    const { header } = this.view.panes[index];
    const origin = run.timeline.forked_from;
    if (origin) header.note("Forked from another run. ", compare(origin.run_id, run.id, "Show both side by side"));
    const { data } = await (await ask(`/runs?kind=agent&limit=${FORKS_AMONG}`)).json();
    for (const { id, input, forked_from: from } of data.reverse()) {
      if (from?.run_id === run.id) header.note(`Forked: ${titleOf(input) || "goes on"} `, compare(run.id, id, "Show both side by side"));
    }
  }

  fork(index, item) {
    const run = this.runs[index];
    askForFork(run, item, ({ id }) => location.assign(comparison(run.id, id)));
  }

  say(words) {
    this.status.textContent = words;
  }

  /** A run that cannot be shown: that is said in the place of an empty timeline. */
  fail(run, error) {
    this.view.root.replaceChildren(notShown("run", run.id, error));
    this.thinkingBox.hidden = true;
  }

  complain(error) {
    this.say(wordsOf(error));
  }
}

/** How long a live run has lasted; null for one that has ended. */
function lasted({ status, duration_s: known = 0, started_at: began }) {
  return LIVE.has(status) ? Math.max(known, Date.now() / 1000 - began) : null;
}

const comparison = (one, other) => `/?run=${encodeURIComponent(one)}&with=${encodeURIComponent(other)}`;

const compare = (one, other, words) => link(words, comparison(one, other));
