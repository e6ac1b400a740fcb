// One conversation, live: its runs so far, and what happens in its session from now on, through any client. A
// connection that breaks is taken up again after the last event that was seen.

import { offerActions } from "../answer/actions.js";
import { button, make } from "../answer/dom.js";
import { inputText } from "../answer/next_messages.js";
import { RunView } from "../answer/runview.js";
import { approveOnce } from "../approvals/waiting.js";
import { ask, newId, post, read } from "../net/api.js";
import { follow } from "../net/follow.js";
import { withStreamSlot, tellState } from "../net/with_stream_slot.js";
import { atNextFrame } from "../next_frame.js";
import { openRun } from "./called_run.js";
import { fileChips, filesOf, titleOf } from "./question_files.js";
import { addImages, keptImage } from "./question_images.js";
import { Versions } from "./versions.js";

const SHOWN_RUNS = 30;
const LINKED_RUNS = 50; // forks are looked for among the latest
const FOUND_PAGES = 20; // that are loaded to find a run
const REST_MS = 60_000; // a hidden tab, in which nothing runs, follows its session for so long
const NOT_TAKEN_MS = 3000;
const NOT_TAKEN = "Still sending: the server is slow, or other windows of this browser have taken all connections to it,";
const RUNNING = new Set(["running", "pending"]);

export class Conversation {
  /**
   * `log` is where it is shown. `say(words)` tells what the connection does, `complain(error)` what went wrong;
   * `changed()` is called when a run begins, ends, waits for an approval, or the conversation gets its name;
   * `giveBack(text)` with a message that no model was given and that the user may change.
   */
  constructor(session, { log, scroll, say, complain, changed, giveBack }) {
    Object.assign(this, { session, log, scroll, say, complain, giveBack });
    this.changed = () => {
      tellState();
      changed();
    };
    this.title = "";
    // id → {view, question, waiting: ids of open approvals, previous: as for `Versions`}, in the order of the ids: of time
    this.runs = new Map();
    this.shown = ""; // the last run of those that are shown, where turns have several versions
    this.cursor = ""; // <run>:<seq> of the last event of the session that was seen
    this.posting = Promise.resolve(); // the last message, until its run has an id
    this.sent = new Map(); // what was said here to the run under way, by the message's id
    this.asking = 0; // messages that the server has not taken yet
    this.approvesAll = false; // each question is answered as it comes
    this.closing = new AbortController();
    this.streaming = ended(); // ends the stream alone
    this.caughtUp = null; // a fork is read from its beginning before what is new
    this.touched = new Set(); // views that have changed since they were drawn
    this.drawing = false;
  }

  /** Its runs so far, then what happens. Resolves to whether there is such a conversation. */
  async open() {
    if (!this.session) return true;
    const path = this.path(`?limit=${SHOWN_RUNS}&reasoning=true`);
    const found = await read(path, { signal: this.closing.signal }).catch((error) => {
      if (error.status === 404) return null;
      throw error;
    });
    if (!found || this.closed) return Boolean(found);
    this.title = titleOf(found.title);
    this.earlier = found.page?.more ? found.page.next : null;
    this.caughtUp = Promise.all(found.data.map((state) => this.restore(state)));
    const live = found.data.find((state) => RUNNING.has(state.status)) ?? found.data.at(-1);
    if (live) this.cursor = `${live.id}:${live.seq}`;
    this.arrange(found.data.at(-1)?.id ?? "");
    this.drawNow();
    this.offerEarlier();
    this.scroll.toEnd();
    this.changed();
    this.follow();
    if (document.hidden) this.looked(false);
    this.linkForks(found.data).catch(() => {}); // the conversation is whole without its links
    return true;
  }

  path(rest) {
    return `/sessions/${encodeURIComponent(this.session)}${rest}`;
  }

  /** Whether it was deleted since it was opened. A message that is on its way begins it anew. */
  async isGone() {
    if (!this.runs.size || this.current || this.asking) return false;
    const before = this.posting;
    const gone = await read(this.path("?limit=1"), { signal: this.closing.signal }).then(
      () => false,
      (error) => error.status === 404,
    );
    return gone && !this.closed && !this.asking && this.posting === before;
  }

  close() {
    clearTimeout(this.rest);
    this.closing.abort();
    this.log.replaceChildren();
  }

  get closed() {
    return this.closing.signal.aborted;
  }

  // ── what it is doing ──────────────────────────────────────────────────────────────────────────────────────

  /** The run that is executed; what is queued after it waits. */
  get current() {
    return [...this.runs.values()].find(({ view }) => !view.ended && !view.parked) ?? null;
  }

  /** Something runs, or a message is on its way. */
  get busy() {
    return this.current !== null || this.asking > 0;
  }

  get waits() {
    return [...this.runs.values()].some(({ view, waiting }) => !view.ended && waiting.size > 0);
  }

  get firstQuestion() {
    return this.runs.values().next().value?.question ?? "";
  }

  get lastQuestion() {
    return this.runs.get(this.shown)?.question ?? "";
  }

  // ── watching ──────────────────────────────────────────────────────────────────────────────────────────────

  async follow() {
    if (!this.streaming.signal.aborted || this.closed) return;
    const streaming = new AbortController();
    this.streaming = streaming;
    const after = () => (this.cursor ? `&after=${encodeURIComponent(this.cursor)}` : "");
    const wanted = AbortSignal.any([this.closing.signal, streaming.signal]);
    const place = () => [this.path(`/stream?reasoning=true${after()}`), {}];
    await this.caughtUp;
    const hold = (signal) =>
      follow({
        place,
        hear: (event) => this.hear(event),
        wanted: () => !wanted.aborted,
        say: (words) => this.closed || this.say(words),
        signal,
      });
    await withStreamSlot("stream", wanted, hold, () => this.busy);
    streaming.abort();
  }

  /** The tab was shown or hidden. A tab in the background goes on while something runs, and then for a while. */
  looked(visible) {
    clearTimeout(this.rest);
    if (!visible) {
      this.restLater();
      return;
    }
    if (this.drawing) this.drawNow(); // the frame that it waits for does not come in the background
    if (this.runs.size) this.follow();
  }

  restLater() {
    this.rest = setTimeout(() => (this.current ? this.restLater() : this.streaming.abort()), REST_MS);
  }

  async hear({ event, data, id }) {
    const entry = JSON.parse(data);
    if (event === "run") await this.meet(entry);
    else await this.apply(entry);
    if (id) this.cursor = id;
  }

  /** A run of this session, perhaps one that was asked for elsewhere. */
  async meet(summary) {
    await this.posting; // what was asked for here is shown already, and has its id then
    if (this.runs.has(summary.id) || this.closed) return;
    const later = [...this.runs].filter(([id]) => id > summary.id); // asked here before this was heard of
    this.begin(summary.input, summary.id, { ...summary, above: later[0]?.[1].view.node });
    for (const [id, run] of later) this.runs.delete(id) && this.runs.set(id, run);
    this.arrange(later.at(-1)?.[0] ?? summary.id);
    this.changed();
  }

  async apply(entry) {
    if (!this.runs.has(entry.run_id)) await this.posting;
    const run = this.runs.get(entry.run_id);
    if (!run || (entry.seq !== undefined && entry.seq <= run.view.seq)) return;
    this.applyTo(run, entry);
  }

  applyTo(run, entry) {
    const state = () => `${run.view.ended} ${run.waiting.size}`;
    const before = state();
    run.view.apply(entry);
    if (entry.type === "snapshot") run.waiting = openApprovals(entry);
    if (entry.type === "approval_asked") run.waiting.add(entry.approval_id);
    if (entry.type === "approval_answered") run.waiting.delete(entry.approval_id);
    if (this.approvesAll && entry.type === "approval_asked") approveOnce(run.view.id, entry.approval_id).catch(this.complain);
    if (state() !== before) this.changed();
    this.draw(run.view);
  }

  /** A fork, from its first event on: there it says what it has from the conversation that it came from. Resolves when it
   *  is as far as `seq`; the session's stream tells the rest, so that a window needs one connection. */
  async catchUp(id, run, seq) {
    await follow({
      place: () => {
        const seen = run.view.seq ? { "Last-Event-ID": String(run.view.seq) } : {};
        return [`/runs/${encodeURIComponent(id)}/stream?reasoning=true`, seen];
      },
      hear: ({ data }) => this.applyTo(run, JSON.parse(data)),
      wanted: () => !run.view.ended && (run.view.seq ?? 0) < seq && !this.closed,
      say: (words) => this.closed || this.say(words),
      signal: this.closing.signal,
    });
  }

  // ── showing ───────────────────────────────────────────────────────────────────────────────────────────────

  /** `pictures`: addresses of images that were sent with it. `above`: the run that follows it. */
  show(question, { above = null, pictures = [], speaker = "" } = {}) {
    const { text, files } = filesOf(question);
    const load = (query) => read(`/runs/${encodeURIComponent(view.id)}?${query}`);
    const timeline = () => read(`/runs/${encodeURIComponent(view.id)}/timeline`);
    const view = new RunView(text, { load, timeline, speaker, openRun: (id) => openRun(id, this.closing.signal) });
    if (!text && pictures.length) view.node.prepend(make("div", "question"));
    const asked = view.node.querySelector(".question");
    if (files.length) asked?.append(fileChips(files));
    if (asked) addImages(asked, pictures);
    view.takeBack = (id) => this.takeBack(view, id).catch(this.complain);
    view.steered = (steer) => this.steered(steer);
    offerActions(view, { again: (...wanted) => this.askAgain(...wanted), fork: (...wanted) => this.startFork(...wanted) });
    if (above) above.before(view.node);
    else this.log.append(view.node);
    return view;
  }

  /** `images`: how many the server keeps of this run. */
  begin(question, id, { images = 0, previous_run: previous = null, ...place } = {}) {
    const kept = Array.from({ length: images }, (_, number) => keptImage(id, number));
    const view = this.show(question, { pictures: kept, ...place });
    const run = { view, question: filesOf(question).text, waiting: new Set(), previous };
    run.view.id = id;
    this.title ||= run.question;
    if (id) this.runs.set(id, run);
    return run;
  }

  /** Resolves once it is as it was told. */
  async restore(state, place) {
    const { images, speaker, previous_run } = state;
    const run = this.begin(state.input, state.id, { ...place, images, speaker, previous_run });
    if (state.forked_from) return this.catchUp(state.id, run, state.seq);
    run.view.restore(state);
    run.view.seq = state.seq;
    run.waiting = openApprovals(state);
    this.touched.add(run.view);
    return undefined;
  }

  /** Shows the runs that lead to this one, of each turn one version. */
  arrange(shown) {
    this.shown = shown;
    const versions = new Versions(this.runs);
    const path = versions.path(shown);
    for (const [id, { view }] of this.runs) {
      view.node.hidden = !path.has(id);
      const all = versions.of(id);
      const at = all.indexOf(id);
      view.versions.show(at + 1, all.length, (step) => {
        this.arrange(versions.latest(all[at + step]));
        this.runs.get(all[at + step]).view.versions.focus(step);
      });
    }
  }

  /** Scrolls to this run, which may be an earlier one. Resolves to whether it is there. */
  async find(id) {
    for (let pages = 0; pages < FOUND_PAGES && this.earlier && !this.runs.has(id); pages++) {
      await this.showEarlier(this.log.querySelector(".earlier-runs"));
    }
    const run = this.runs.get(id);
    if (!run) return false;
    if (run.view.node.hidden) this.arrange(new Versions(this.runs).latest(id));
    this.scroll.following = false;
    run.view.node.scrollIntoView({ block: "start" });
    return true;
  }

  /** At most once per frame, whatever arrives in between. */
  draw(view) {
    this.touched.add(view);
    if (this.drawing) return;
    this.drawing = true;
    atNextFrame(() => this.drawNow());
  }

  drawNow() {
    this.drawing = false;
    for (const view of this.touched) view.draw();
    this.touched.clear();
    this.scroll.keep();
  }

  // ── earlier runs ──────────────────────────────────────────────────────────────────────────────────────────

  offerEarlier() {
    if (!this.earlier) return;
    this.log.prepend(button("Earlier messages", (pressed) => this.showEarlier(pressed).catch(this.complain), "quiet earlier-runs"));
  }

  async showEarlier(button) {
    button.disabled = true;
    try {
      const before = `&before=${encodeURIComponent(this.earlier)}`;
      const path = this.path(`?limit=${SHOWN_RUNS}&reasoning=true${before}`);
      const found = await read(path, { signal: this.closing.signal });
      const below = this.log.scrollHeight - this.log.scrollTop;
      const later = [...this.runs];
      const first = button.nextElementSibling;
      this.runs.clear();
      for (const state of found.data) this.restore(state, { above: first });
      for (const [id, run] of later) this.runs.set(id, run);
      this.earlier = found.page?.more ? found.page.next : null;
      button.remove();
      this.offerEarlier();
      this.arrange(this.shown);
      this.drawNow();
      this.log.scrollTop = this.log.scrollHeight - below; // what was read stays where it is
      this.log.focus({ preventScroll: true });
    } finally {
      button.disabled = false;
    }
  }

  // ── what people do ────────────────────────────────────────────────────────────────────────────────────────

  /** To the run under way; where there is none, it begins one. Rejects where the server did not take it. */
  async send(text, parts, model) {
    const run = this.current;
    if (run?.view.id && (await this.steer(run.view, text, parts))) return;
    await this.ask(text, parts, model);
  }

  /** Whether the run takes it: the log says so and shows it. */
  async steer(view, text, parts) {
    const input = parts.length ? [{ type: "text", text }, ...parts] : text;
    const path = `/runs/${encodeURIComponent(view.id)}/steer`;
    const taken = await post(path, { input, idempotency_key: newId() }).catch((error) => {
      if (error.status === 409) return null; // it has ended
      throw error;
    });
    if (!taken) return false;
    const { id } = await taken.json();
    this.sent.set(id, { text, parts });
    const known = view.log.steers.get(id);
    if (known?.state) this.steered(known); // its end was told first
    return true;
  }

  /** What the run has not taken before its end is asked next; after a stop the user may change it first. */
  steered({ accepted, state, reason }) {
    const mine = state && this.sent.get(accepted.steer_id);
    if (!mine) return;
    this.sent.delete(accepted.steer_id);
    if (reason === "run_ended") this.ask(mine.text, mine.parts).catch(this.complain);
    else if (state === "returned") this.giveBack(mine.text);
  }

  async takeBack(view, id) {
    const isKnown = this.sent.has(id); // else it was sent before this page was loaded
    const { input } = await read(`/runs/${encodeURIComponent(view.id)}/steer/${encodeURIComponent(id)}`, { method: "DELETE" });
    if (!isKnown) this.giveBack(inputText(input));
  }

  /** Whether a message waits that was taken back now: what Esc does first. */
  takeNewestBack() {
    const view = this.current?.view;
    const id = view?.next.newest;
    if (id) view.takeBack(id);
    return Boolean(id);
  }

  /** Asks. `parts` are what is attached. Rejects where the server did not take it; then nothing is shown. */
  async ask(text, parts, model) {
    const input = parts.length ? [{ role: "user", content: [{ type: "text", text }, ...parts] }] : text;
    const question = text + parts.map((part) => part.text ?? "").join("");
    const pictures = parts.flatMap(({ image_url: image }) => (image ? [image.url] : []));
    const run = this.begin(question, "", { pictures });
    if (this.shown && this.shown !== [...this.runs.keys()].at(-1)) run.previous = this.shown; // an older version is shown
    const { activity } = run.view;
    activity.set("Sending");
    const waiting = setTimeout(() => activity.set(NOT_TAKEN, activity.since), NOT_TAKEN_MS);
    this.draw(run.view);
    this.scroll.toEnd();
    // The key makes a retry by the browser harmless: it finds the run instead of starting another.
    const body = { input, session: this.session, idempotency_key: newId(), busy: "queue", ...(model && { model }) };
    if (run.previous !== null) body.previous_run = run.previous;
    this.asking += 1;
    tellState();
    const posted = post("/runs", body)
      .then((response) => response.json())
      .finally(() => {
        clearTimeout(waiting);
        this.asking -= 1;
      });
    this.posting = posted.then(
      ({ id }) => {
        run.view.id = id;
        run.view.activity.set("Thinking");
        this.runs.set(id, run);
        this.arrange(id);
      },
      () => {
        run.view.node.remove();
        tellState();
      },
    );
    const { id } = await posted;
    await this.posting;
    this.cursor ||= `${id}:0`;
    this.changed();
    this.follow();
  }

  /** Whether each question of this conversation is answered with "once", those too that wait now. Ends with this view. */
  approveAll(on) {
    this.approvesAll = on;
    for (const { view, waiting } of on ? this.runs.values() : []) {
      for (const id of waiting) approveOnce(view.id, id).catch(this.complain);
    }
    this.changed();
  }

  stop() {
    const id = this.current?.view.id;
    return id ? post(`/runs/${encodeURIComponent(id)}/stop`, {}) : Promise.resolve();
  }

  /** A further version of this run's turn, in its place. Resolves to whether the server has taken it. */
  async askAgain(view, body, button) {
    button.disabled = true;
    try {
      await post(`/runs/${encodeURIComponent(view.id)}/retry`, { ...body, idempotency_key: newId() });
      this.scroll.toEnd(); // the session's stream brings it
      this.follow();
      return true;
    } catch (error) {
      if (error.status === 403) await this.startFork(view, { ...body, after: 0 }, button); // a chat of a platform
      else this.complain(error);
      return false;
    } finally {
      button.disabled = false;
    }
  }

  /** Another conversation from this run on; the page goes there, and Back comes here again. */
  async startFork(view, body, button) {
    button.disabled = true;
    try {
      const response = await post(`/runs/${encodeURIComponent(view.id)}/fork`, { ...body, idempotency_key: newId() });
      location.assign(place((await response.json()).session));
    } catch (error) {
      this.complain(error);
    } finally {
      button.disabled = false;
    }
  }

  /** Links between a fork and the run that it came from, both ways. */
  async linkForks(states) {
    for (const { id, forked_from: origin } of states) {
      if (!origin) continue;
      const source = await read(`/runs/${encodeURIComponent(origin.run_id)}`).catch(() => null);
      if (source?.session === this.session) continue; // a version of a fork
      this.runs.get(id)?.view.link(
        source ? "Forked from another conversation" : "Forked from a conversation that is gone",
        source?.session && place(source.session),
        { above: true },
      );
    }
    for (const run of (await read(`/runs?kind=agent&limit=${LINKED_RUNS}`)).data.reverse()) {
      const source = this.runs.get(run.forked_from?.run_id);
      if (source && run.session !== this.session) source.view.link(`Forked here: ${titleOf(run.input)}`, place(run.session));
    }
  }
}

export const place = (session) => `/?session=${encodeURIComponent(session)}`;

function ended() {
  const controller = new AbortController();
  controller.abort();
  return controller;
}

function openApprovals(state) {
  return new Set((state.approvals ?? []).filter(({ decision }) => !decision).map(({ asked }) => asked.approval_id));
}
