// Notifications of the browser, for people who have asked for them and do not see the page now.

const WANTED = "tailrace.notify";

/** Browsers offer them on this machine and over HTTPS only. */
export const canNotify = () => "Notification" in globalThis && isSecureContext && Notification.permission !== "denied";

export const wantsNotifications = () =>
  canNotify() && Notification.permission === "granted" && localStorage.getItem(WANTED) === "yes";

/** Asks the user; resolves to whether they are on now. */
export async function switchNotifications() {
  const on = !wantsNotifications() && (await Notification.requestPermission()) === "granted";
  localStorage.setItem(WANTED, on ? "yes" : "no");
  return on;
}

export function notify(question, open) {
  if (!wantsNotifications() || !document.hidden) return;
  try {
    const shown = new Notification(`${question.tool_name} asks for approval`, {
      body: `${question.command.slice(0, 200)}\n${question.title}`,
      tag: question.approval_id,
    });
    shown.addEventListener("click", () => {
      window.focus();
      shown.close();
      open();
    });
  } catch {
    // some phones know the word and not the thing
  }
}
