// The entry of the page: the address says what is opened. Owns what all views share: the list of conversations, the
// message box, the status line and the tab's title.

import { element } from "./answer/dom.js";
import { startInbox } from "./approvals/inbox.js";
import { commandActions } from "./conversation/command_actions.js";
import { Composer } from "./conversation/composer.js";
import { Conversation, place } from "./conversation/conversation.js";
import { drawEmpty, drawMissing } from "./conversation/empty.js";
import { markFound } from "./conversation/found_text.js";
import { ModelPicker } from "./conversation/models.js";
import { Scroll } from "./conversation/scroll.js";
import { shareConversation } from "./conversation/share.js";
import { isName, newId, read, wordsOf } from "./net/api.js";
import { onceReached } from "./net/reached.js";
import { notShown } from "./not_shown.js";
import { offerTheme } from "./theme.js";
import { Sidebar } from "./sidebar/sidebar.js";

const byId = (id) => document.getElementById(id);
const scroll = new Scroll(byId("log"), byId("latest"));
let about = null; // what the server says of itself
let models = null; // the choice of a model
let conversation = null;
let lost = null; // the error of a request that did not reach the server, where the status line says so
let tellReady;
const ready = new Promise((resolve) => (tellReady = resolve)); // there is a conversation: Send may be pressed before
let missing = null; // the conversation that is shown as deleted: it may be begun again elsewhere

const say = (words) => {
  byId("status").textContent = words;
  lost = null;
};
const complain = (error) => {
  if (error.name === "AbortError") return;
  say(wordsOf(error));
  if (error.status) return;
  lost = error;
  onceReached(() => lost === error && say(""));
};

const composer = new Composer({
  send,
  stop: () => conversation.stop(),
  lastQuestion: () => conversation.lastQuestion,
  command: (name, argument) => ready.then(() => commands[name](argument)).catch(complain),
  say,
  complain,
});
const sidebar = new Sidebar({
  open: (session, run) => go(session ? place(session) + (run ? `#${run}` : "") : "/"),
  removed: (session) => session === conversation?.session && go("/"),
  renamed: (session, title) => session === conversation?.session && rename(title),
  listed: closeDeleted,
  share,
});
const commands = commandActions({
  ...{ composer, sidebar, go, say, press: pressLast },
  conversation: () => conversation,
  models: () => models,
  model: () => models?.chosen || about?.model || "the configured one",
});

// ── the conversation ────────────────────────────────────────────────────────────────────────────────────────

/** Opens what the address names. */
async function openAddress() {
  const name = new URLSearchParams(location.search).get("session");
  const session = name !== null && isName(name) ? name : "";
  if (conversation && session === conversation.session && conversation !== missing) return showFound(conversation);
  show(session);
  if (name !== null && !session) say("The address names no conversation. This is a new one.");
  composer.open(session);
  if (!matchMedia("(pointer: coarse)").matches) composer.focus(); // there it would open the keyboard
  const opened = conversation;
  try {
    if (!(await opened.open()) && opened === conversation) tellMissing();
    else await showFound(opened);
  } catch (error) {
    complain(error);
  }
}

/** The run that the address names, with what was searched for marked in it. */
async function showFound(opened) {
  const run = decodeURIComponent(location.hash.slice(1));
  const found = run && (await opened.find(run));
  if (opened === conversation) markFound(byId("log"), found ? sidebar.query : "");
}

/** A new name of the conversation that is shown; without one it has its first question's again. */
function rename(title) {
  conversation.title = title || conversation.firstQuestion;
  changed();
}

async function share(session) {
  try {
    if (session !== conversation.session) {
      history.pushState(null, "", place(session));
      await openAddress();
    }
    await shareConversation(byId("log"), conversation.title);
  } catch (error) {
    complain(error);
  }
}

/** Presses a button of the last answer. Whether there was one. */
function pressLast(name) {
  const last = [...byId("log").querySelectorAll(":scope > article:not([hidden])")].at(-1);
  const button = last && [...last.querySelectorAll(".actions:not([hidden]) button")].find(({ title }) => title === name);
  button?.click();
  return Boolean(button);
}

function show(session) {
  conversation?.close();
  say("");
  if (!session) drawFirst();
  const opened = new Conversation(session, {
    ...{ log: byId("log"), scroll, complain },
    say: (words) => opened === conversation && say(words),
    changed: () => opened === conversation && changed(),
    giveBack: (text) => opened === conversation && composer.putBefore(text),
  });
  conversation = opened;
  tellReady();
  scroll.toEnd();
  changed();
}

/** Something has begun, ended or waits: the title, the box and the list say so. */
function changed() {
  const running = conversation.current !== null;
  composer.running = running;
  byId("heading").textContent = conversation.title || "New conversation";
  byId("more").hidden = !conversation.session;
  byId("yolo").hidden = !conversation.approvesAll;
  const title = (conversation.title ?? "").replace(/\s+/g, " ").trim();
  const name = title ? `${title.length > 60 ? `${title.slice(0, 59)}…` : title} · Tailrace` : "Tailrace";
  document.title = conversation.waits ? `Approval needed · ${name}` : running ? `● ${name}` : name;
  sidebar.changed(conversation.session);
  byId("empty").hidden = byId("log").childElementCount > 0 || Boolean(conversation.session);
}

/** What stands where nothing was asked yet, of the model that would be asked. */
function drawFirst() {
  const other = models?.chosen;
  const answering = about && other ? { ...about, model: other, embedded: false } : about;
  drawEmpty(byId("empty"), answering, (words) => composer.fill(words));
}

function tellMissing() {
  drawMissing(byId("empty"));
  byId("empty").hidden = false;
  missing = conversation;
}

/** What is shown and no longer listed may be old, or not what is searched for; or another client has deleted it: the
 * model would be asked without what is on the screen. */
async function closeDeleted(sessions) {
  const shown = conversation;
  if (shown && shown === missing && sessions.has(shown.session)) openAddress(); // another client has begun it
  if (!shown || sessions.has(shown.session) || !(await shown.isGone()) || shown !== conversation) return;
  show(shown.session);
  tellMissing();
}

async function send(text, parts, how) {
  if (!conversation) say("Sending once the server answers…"); // taken back when the conversation is opened
  await ready;
  missing = null;
  const began = !conversation.session;
  if (began) {
    conversation.session = newId();
    history.pushState(null, "", place(conversation.session));
    composer.rename(conversation.session);
  }
  byId("empty").hidden = true;
  say(""); // what went wrong before is over: it is tried again
  try {
    if (how === "queue") await conversation.ask(text, parts, models?.chosen ?? "");
    else await conversation.send(text, parts, models?.chosen ?? "");
  } finally {
    changed();
  }
}

/** Another conversation, without loading the page again. */
function go(address) {
  history.pushState(null, "", address);
  if (address === "/") conversation = conversation?.session ? conversation : null; // an empty one is opened anew
  openAddress();
}

// ── the page ────────────────────────────────────────────────────────────────────────────────────────────────

function listen() {
  addEventListener("popstate", openAddress);
  byId("yolo").addEventListener("click", () => commands.yolo("off"));
  for (const id of ["fresh", "fresh-narrow"]) byId(id).addEventListener("click", () => sidebar.choose(""));
  byId("more").addEventListener("click", () => sidebar.openMenu(byId("more")));
  document.addEventListener("visibilitychange", () => conversation?.looked(!document.hidden));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
    event.preventDefault();
    sidebar.focusSearch();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing || event.defaultPrevented) return;
    if (event.target.closest?.("input, select")) return; // there it clears or closes
    if (document.querySelector("dialog[open]") || sidebar.closeDrawer()) return;
    if (conversation?.current && !conversation.takeNewestBack()) composer.interrupt();
  });
}

/** The first request: where the server wants a key, it is asked for now and not after the first message. */
async function meetServer() {
  about = await read("/about").catch((error) => {
    complain(error);
    return null;
  });
  composer.attachments.maxBodyBytes = about?.max_body_bytes ?? 0;
  if (about) Object.assign(byId("version"), { textContent: about.version, title: `Tailrace ${about.version}` });
}

/** The conversation that the address names, or a new one. */
async function openConversations() {
  listen();
  offerTheme(byId("theme"));
  await meetServer();
  models = new ModelPicker(byId("model"), about?.model, () => conversation?.session || drawFirst());
  sidebar.start();
  startInbox(document.querySelector("#stage > header"));
  await openAddress();
}

// ── other views ─────────────────────────────────────────────────────────────────────────────────────────────

/** Each takes the whole page, and is loaded when the address names it. */
const VIEWS = {
  run: () => import("./inspector/inspector.js").then((view) => view.openInspector()),
  ops: () => import("./operations/operations.js").then((view) => view.openOperations()),
  runs: () => import("./operations/runs_table.js").then((view) => view.openRuns()),
  usage: () => import("./usage/usage.js").then((view) => view.openUsage()),
  instance: () => import("./instance/instance.js").then((view) => view.openInstance()),
  docs: () => import("./api_docs/api_docs.js").then((view) => view.openDocs()),
};
const address = new URLSearchParams(location.search);
const named = location.pathname === "/docs" ? "docs" : Object.keys(VIEWS).find((name) => address.has(name));
const isCut = ["run", "instance"].includes(named) && !isName(address.get(named)); // these need an id
/** The view's own files cannot be loaded: nothing else stands on the page. */
function tellUnopened(error) {
  const main = element("main", [notShown(named, address.get(named), error)]);
  main.id = "usage"; // the plainest of them
  main.className = "view";
  document.body.append(main);
}

if (named && !isCut) VIEWS[named]().catch(tellUnopened);
else {
  delete document.body.dataset.view;
  openConversations().then(() => isCut && say(`The address names no ${named}.`));
}
