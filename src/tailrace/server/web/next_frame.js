// When to draw: at the next frame. A tab in the background has none, nor has one that goes there before its next.

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
