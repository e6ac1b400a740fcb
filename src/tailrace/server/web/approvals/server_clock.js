// What the server says of itself in a list of approvals: who this page is to it, and what time it is there.

const known = { name: "", answersAll: false, skewS: 0 };

export function learn({ you, answers_all: answersAll, now }) {
  if (you) known.name = you;
  known.answersAll = Boolean(answersAll);
  if (now) known.skewS = now - Date.now() / 1000;
}

/** The server's time, in seconds since the epoch: a question expires by that, however this clock is set. */
export const serverNow = () => Date.now() / 1000 + known.skewS;

/** Whether this page's key may answer; true until the server has said which key that is. It checks in any case. */
export const mayAnswer = (asked) => !known.name || known.answersAll || asked.requester === known.name;
