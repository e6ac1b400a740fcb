// A conversation with the agent, live. The address keeps the session, so that a reload finds its runs; a
// connection that breaks is taken up again after the last event that was seen.

import { offerActions } from "../answer/actions.js";
import { wantsReasoning } from "../answer/reasoning.js";
import { RunView } from "../answer/runview.js";
import { ask, newId, post } from "../net/api.js";
import { events } from "../net/sse.js";

const byId = (id) => document.getElementById(id);
const log = byId("log");
const input = byId("message");
const send = byId("send");
const stop = byId("stop");
const RETRY_MS = [250, 500, 1000, 2000, 5000];
const SHOWN_RUNS = 50;
const HIDDEN_MS = 250;
const LINKED_RUNS = 50; // forks are looked for among the latest

let session = new URLSearchParams(location.search).get("session") ?? "";
let current = null; // { id, view } of the run that is being watched
let drawing = false;

// ── watching a run ──────────────────────────────────────────────────────────────────────────────────────────

/** `whole`: from the first event on, where there is more to see than the state. */
async function watch(id, view, { whole = false } = {}) {
  current = { id, view };
  stop.disabled = false;
  let failures = 0;
  while (!view.ended) {
    try {
      const headers = view.seq ? { "Last-Event-ID": String(view.seq) } : {};
      const response = await ask(`/runs/${encodeURIComponent(id)}/stream?snapshot=${!whole}&reasoning=${wantsReasoning()}`, { headers });
      for await (const event of events(response.body)) {
        if (event.event === "error") break; // the server stops; another will go on
        failures = 0;
        say("");
        view.apply(JSON.parse(event.data));
        draw();
      }
      if (response.status === 204) view.seq = 0; // it has ended and we missed how: begin with its state
    } catch (error) {
      if (error.status && error.status < 500) {
        say(error.message);
        break;
      }
    }
    if (view.ended) break;
    say("Connection lost. Reconnecting…");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]));
  }
  if (current?.view === view) {
    current = null;
    stop.disabled = true;
  }
  draw();
}

function show(question, id) {
  const load = (query) => ask(`/runs/${encodeURIComponent(view.id)}?${query}`).then((answer) => answer.json());
  const view = new RunView(question, { load });
  view.id = id;
  offerActions(view, startFork);
  log.append(view.node);
  return view;
}

/** At most once per frame, whatever arrives in between. A tab in the background has no frames. */
function draw() {
  if (drawing) return;
  drawing = true;
  if (document.hidden) setTimeout(drawNow, HIDDEN_MS);
  else requestAnimationFrame(drawNow);
}

function drawNow() {
  drawing = false;
  const pinned = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  for (const view of views) view.draw();
  if (pinned) log.scrollTop = log.scrollHeight;
}

const views = new Set();
function remember(view) {
  views.add(view);
  return view;
}

// ── what people do ──────────────────────────────────────────────────────────────────────────────────────────

async function submit(event) {
  event.preventDefault();
  const text = input.value.trim();
  if (!text) return;
  if (!session) keepSession(newId());
  input.value = "";
  send.disabled = true;
  const view = remember(show(text, ""));
  log.scrollTop = log.scrollHeight;
  try {
    // The key makes a retry by the browser harmless: it finds the run instead of starting another.
    const response = await post("/runs", { input: text, session, idempotency_key: newId() });
    view.id = (await response.json()).id;
    watch(view.id, view);
  } catch (error) {
    view.node.remove();
    input.value = text;
    complain(error);
  } finally {
    send.disabled = false;
    input.focus();
  }
}

/** Another conversation from this run on; the page goes there, and Back comes here again. */
async function startFork(view, body, button) {
  button.disabled = true;
  try {
    const response = await post(`/runs/${encodeURIComponent(view.id)}/fork`, { ...body, idempotency_key: newId() });
    location.assign(place((await response.json()).session));
  } catch (error) {
    complain(error);
  } finally {
    button.disabled = false;
  }
}

const place = (name) => `/?session=${encodeURIComponent(name)}`;

/** Links between a fork and the run that it came from, both ways. */
async function linkForks(states) {
  const shown = new Map([...views].map((view) => [view.id, view]));
  for (const { id, forked_from: origin } of states) {
    if (!origin) continue;
    const source = await ask(`/runs/${encodeURIComponent(origin.run_id)}`).then((found) => found.json(), () => null);
    shown.get(id).link(
      source ? "Forked from another conversation" : "Forked from a conversation that is gone",
      source?.session && place(source.session),
      { above: true },
    );
  }
  const latest = await (await ask(`/runs?kind=agent&limit=${LINKED_RUNS}`)).json();
  for (const run of latest.data.reverse()) {
    const view = shown.get(run.forked_from?.run_id);
    if (view && run.session !== session) view.link(`Forked here: ${run.input}`, place(run.session));
  }
}

function complain(error) {
  say(error.status ? error.message : "The server cannot be reached.");
}

function say(text) {
  byId("status").textContent = text;
}

function keepSession(id) {
  session = id;
  history.replaceState(null, "", `?session=${encodeURIComponent(id)}`);
}

/** The conversation so far: what has ended is shown as it is, what runs is watched. */
async function reload() {
  const response = await ask(`/runs?limit=${SHOWN_RUNS}&session=${encodeURIComponent(session)}`);
  const { data } = await response.json();
  const states = await Promise.all(
    data.reverse().map((run) => ask(`/runs/${encodeURIComponent(run.id)}?reasoning=${wantsReasoning()}`).then((answer) => answer.json())),
  );
  for (const state of states) {
    const view = remember(show(state.input, state.id));
    if (state.forked_from) watch(state.id, view, { whole: true });
    else if (state.status === "running" || state.status === "pending") watch(state.id, view);
    else view.restore(state);
    if (view.ended) view.seq = state.seq;
  }
  draw();
  log.scrollTop = log.scrollHeight;
  await linkForks(states);
}

/** The conversation that the address names, or a new one. */
export function openConversation() {
  byId("ask").addEventListener("submit", submit);
  document.addEventListener("visibilitychange", () => {
    if (drawing) drawNow(); // the frame that it waits for does not come in the background
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  });
  stop.addEventListener("click", () => {
    if (current) post(`/runs/${encodeURIComponent(current.id)}/stop`, {}).catch(complain);
  });
  if (session) reload().catch(complain);
}
