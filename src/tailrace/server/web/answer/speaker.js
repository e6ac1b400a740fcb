// Who asked, where several people share a conversation.

/** The question of a run without the speaker before it. In another wording it is still that person's: the server sees
 * to it. */
export const typedQuestion = ({ question, speaker }) => (speaker ? question.slice(`${speaker}: `.length) : question);

// The marks of `events/speakers.py`: a line with the person's id and name, what the message refers to, and a bar before
// each line that is theirs.
const MARKED = /^\[from ([^[\]\n"]+?)(?: "([^[\]\n"]*)")?\]((?:\n[|>[][^\n]*)*)$/;

/** A message of a shared conversation that the model has read, for people: `Ben: for me too`. A person who
 * types the marks while alone there gains nothing: `Ben: ` can be typed as well. */
export function spokenText(text) {
  const [, id, name, lines] = MARKED.exec(text) ?? [];
  return id ? `${name || id}: ${lines.slice(1).replace(/^\| ?/gm, "")}`.trimEnd() : text;
}
