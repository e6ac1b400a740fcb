// The message box: what is written, kept and sent.

import { show } from "../icons.js";
import { Attachments } from "./attachments.js";
import { CommandList, commandIn } from "./commands.js";

const byId = (id) => document.getElementById(id);
const DRAFT = "tailrace.draft.";
const ASKING = "Ask anything";
const STEERING = "Say something to the answer under way";
const SAYING = ["steer", "queue"]; // commands that send their message

export class Composer {
  /** `send(text, parts, how)` resolves once the server has the message, with "queue" for after the answer; `stop()` ends the run; `lastQuestion()` is for Up;
   * `command(name, argument)` carries out a slash command. */
  constructor({ send, stop, lastQuestion, command, say, complain }) {
    Object.assign(this, { send, stop, lastQuestion, command, say, complain });
    this.box = byId("message");
    this.attachments = new Attachments(byId("attached"), say, () => this.tellButton());
    this.commands = new CommandList(byId("commands"), this.box, (text) => this.fill(text));
    this.session = null; // none is open yet
    this.sending = false;
    byId("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.stops) this.interrupt();
      else this.submit(event);
    });
    byId("send").addEventListener("click", (event) => event.detail > 1 && event.preventDefault()); // it stops then
    this.box.addEventListener("keydown", (event) => this.pressed(event));
    this.box.addEventListener("input", () => this.written());
    this.takeFiles();
    this.running = false;
  }

  /** The draft of this conversation, "" for a new one. */
  open(session) {
    const isFirst = this.session === null;
    const early = isFirst ? this.box.value : ""; // written while the page was made ready
    if (early && session && sessionStorage.getItem(DRAFT) === early) sessionStorage.removeItem(DRAFT);
    this.session = session;
    this.box.value = early || (sessionStorage.getItem(DRAFT + session) ?? "");
    if (!isFirst) this.attachments.clear();
    this.written();
    if (/\S\s*\n$/.test(early)) this.submit(new Event("submit")); // Enter, before this script listened
  }

  /** A new conversation has got its name. */
  rename(session) {
    sessionStorage.removeItem(DRAFT + this.session);
    this.session = session;
  }

  set running(running) {
    this.isRunning = running;
    this.box.placeholder = running ? STEERING : ASKING;
    this.tellButton();
  }

  /** Whether the button ends the answer under way: nothing is written that it could send. */
  get stops() {
    return this.isRunning && !this.box.value.trim() && !this.attachments.items.length;
  }

  tellButton() {
    const [name, label] = this.stops ? ["square", "Stop"] : ["arrow-up", "Send"];
    if (byId("send").title !== label) show(byId("send"), name, label);
  }

  fill(text) {
    this.box.value = text;
    this.written();
    this.box.focus();
  }

  /** What was not said after all stands before what is being written. */
  putBefore(text) {
    this.fill(this.box.value ? `${text}\n${this.box.value}` : text);
  }

  focus() {
    this.box.focus({ preventScroll: true });
  }

  interrupt() {
    this.stop().catch(this.complain);
    this.focus();
  }

  async submit(event) {
    event.preventDefault();
    const parts = this.attachments.parts;
    const text = this.box.value.trim() || this.attachments.names.join(", ");
    if (!text || this.sending) return;
    const command = commandIn(this.commands.chosen ? `/${this.commands.chosen.name}` : text);
    const said = (SAYING.includes(command?.name) && command.argument) || "";
    if (command && !said && (command.isKnown || !command.argument)) {
      this.fill("");
      if (command.isKnown) this.command(command.name, command.argument);
      else this.say(`/${command.name} is no command. /help lists what there is.`);
      return;
    }
    this.sending = true;
    const { items } = this.attachments;
    this.fill("");
    this.attachments.clear();
    byId("send").disabled = true;
    try {
      await this.send(said || text, parts, said && command.name);
    } catch (error) {
      if (!this.box.value) this.fill(text);
      this.attachments.items = items;
      this.attachments.draw();
      this.complain(error);
    } finally {
      this.sending = false;
      byId("send").disabled = false;
      this.focus();
    }
  }

  pressed(event) {
    if (event.isComposing || event.keyCode === 229) return; // Enter and Up belong to the input method then
    if (this.commands.press(event)) return;
    if (event.key === "Enter" && !event.shiftKey) this.submit(event);
    if (event.key === "ArrowUp" && !this.box.value && this.lastQuestion()) {
      event.preventDefault();
      this.fill(this.lastQuestion());
    }
  }

  written() {
    const draft = DRAFT + (this.session ?? "");
    if (this.box.value) sessionStorage.setItem(draft, this.box.value);
    else sessionStorage.removeItem(draft);
    this.tellButton();
    this.commands.update();
    this.grow();
  }

  /** The box is as high as its text; browsers with `field-sizing` do it by themselves. */
  grow() {
    if (CSS.supports("field-sizing", "content")) return;
    this.box.style.height = "auto";
    this.box.style.height = `${this.box.scrollHeight + 2}px`;
  }

  takeFiles() {
    const files = byId("files");
    byId("attach").addEventListener("click", () => files.click());
    files.addEventListener("change", async () => {
      await this.attach([...files.files]);
      files.value = "";
    });
    this.box.addEventListener("paste", (event) => {
      const pasted = [...(event.clipboardData?.files ?? [])];
      if (!pasted.length) return;
      event.preventDefault();
      this.attach(pasted);
    });
    const stage = byId("stage");
    stage.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      stage.classList.add("drop");
    });
    stage.addEventListener("dragleave", (event) => {
      if (!stage.contains(event.relatedTarget)) stage.classList.remove("drop");
    });
    stage.addEventListener("drop", (event) => {
      stage.classList.remove("drop");
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      this.attach([...event.dataTransfer.files]);
    });
  }

  async attach(files) {
    await this.attachments.add(files).catch(this.complain);
    this.focus();
  }
}
