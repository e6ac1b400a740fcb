// Who asked, where several people share a conversation.

/** The question of a run without the speaker before it. In another wording it is still that person's: the server sees
 * to it. */
export const typedQuestion = ({ question, speaker }) => (speaker ? question.slice(`${speaker}: `.length) : question);

// The marks of `speaker_marks.py`: a line that names the person, and a bar before each line that is theirs.
const ABOVE = /\[the messages above are from [^[\]\n]+\]\n|\[it is not known who wrote the messages above\]\n/;
const MARKED = new RegExp(`^(?:${ABOVE.source})?\\[from ([^[\\]\\n]+)\\]((?:\\n\\|(?: [^\\n]*)?)*)$`);

/** A message of a shared conversation that the model has read, for people: `Ben: for me too`. Nobody gains by typing the
 * marks while alone there: whoever does could type `Ben: ` as well. */
export function spokenText(text) {
  const [, name, lines] = MARKED.exec(text) ?? [];
  return name ? `${name}: ${lines.slice(1).replace(/^\| ?/gm, "")}`.trimEnd() : text;
}
