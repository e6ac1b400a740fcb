// Under which heading a conversation stands in the list.

const DAY_S = 24 * 3600;

/** By the day of its last message; `now` is in seconds since the epoch. */
export function groupOf({ pinned, updated_at: at }, now = Date.now() / 1000) {
  if (pinned) return "Pinned";
  const midnight = new Date(now * 1000).setHours(0, 0, 0, 0) / 1000;
  if (at >= midnight) return "Today";
  if (at >= midnight - DAY_S) return "Yesterday";
  if (at >= midnight - 7 * DAY_S) return "Previous 7 days";
  if (at >= midnight - 30 * DAY_S) return "Previous 30 days";
  return new Date(at * 1000).toLocaleDateString("en-GB", { month: "long", year: "numeric" });
}
