// Work that waits until it is nearly in view.

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
