// What approvals say. A question without an answer is never shown as a refusal by a person.

const APPROVED = { once: "Approved once", session: "Approved for this session", always: "Approved always" };

/** What became of a question. */
export function outcome(asked, { decision, by = "", reason = "" }) {
  if (decision !== "deny") return APPROVED[decision] ?? `Approved (${decision})`;
  if (by === "no surface") return "Not executed: no person could be asked";
  if (by === "timeout") {
    const waitedS = asked.expires_at ? Math.round(asked.expires_at - asked.asked_at) : 0;
    return `Not executed: no answer came ${waitedS ? `within ${waitedS} s` : "in time"}`;
  }
  return reason ? `Denied: ${reason}` : "Denied";
}

/** The requester, for people: "PLATFORM:7" is Anna. */
export const requesterName = (asked) => asked.requester_name || asked.requester || "";

/** What the two longer approvals cover, each in one line. */
export function coverage(asked) {
  const what = `exactly this${asked.directory ? ` in ${asked.directory}` : ""}`;
  const who = asked.requester ? `, for ${requesterName(asked)}` : "";
  return {
    session: `${what}${who}, in this ${asked.session ? "conversation" : "run"} only`,
    always: `${what}${who}, in every conversation, after a restart too; "tailrace approvals" takes it back`,
  };
}
