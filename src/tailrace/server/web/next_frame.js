// When to draw: at the next frame, or once it is nearly in view. A tab in the background has no frame, nor has one that
// goes there before its next.

const HIDDEN_MS = 250;

/** Calls once. */
export function atNextFrame(draw) {
  const asked = [0, 0];
  const now = () => {
    cancelAnimationFrame(asked[0]);
    clearTimeout(asked[1]);
    draw();
  };
  asked[0] = requestAnimationFrame(now);
  asked[1] = setTimeout(now, HIDDEN_MS);
}

/** Calls `act` once `node` is near the screen. */
export function onceSeen(node, act) {
  const look = ([seen]) => {
    if (!seen.isIntersecting) return;
    observer.disconnect();
    act();
  };
  const observer = new IntersectionObserver(look, { rootMargin: "50%" });
  observer.observe(node);
}
