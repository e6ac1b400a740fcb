// Where the conversation is read: it follows what is written while its end is in view, and stays put otherwise.

const AT_END_PX = 40;

export class Scroll {
  constructor(log, button) {
    this.log = log;
    this.button = button;
    this.following = true;
    this.top = 0;
    log.addEventListener("scroll", () => this.moved(), { passive: true });
    button.addEventListener("click", () => {
      this.toEnd();
      document.getElementById("message").focus({ preventScroll: true });
    });
    new ResizeObserver(() => this.keep()).observe(log); // the box below grows, an approval waits, a keyboard opens
  }

  get below() {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight;
  }

  /** Moving up ends following; arriving at the end begins it. Text that grows moves nothing. */
  moved() {
    const up = this.log.scrollTop < this.top;
    this.top = this.log.scrollTop;
    if (this.below < AT_END_PX) this.following = true;
    else if (up) this.following = false;
    this.show();
  }

  /** After something was drawn. */
  keep() {
    if (this.following) this.log.scrollTop = this.log.scrollHeight;
    this.show();
  }

  toEnd() {
    this.following = true;
    this.keep();
  }

  show() {
    this.button.hidden = this.following || this.below < AT_END_PX;
  }
}
