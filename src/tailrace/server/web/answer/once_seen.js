// Work that waits until it is nearly in view.

/** Calls `act` once `node` is near the screen. */
export function onceSeen(node, act) {
  const observer = new IntersectionObserver(([seen]) => {
    if (!seen.isIntersecting) return;
    observer.disconnect();
    act();
  });
  observer.observe(node);
}
