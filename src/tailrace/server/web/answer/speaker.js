// Who asked, where several people share a conversation.

/** The question of a run without the speaker before it. In another wording it is still that person's: the server sees
 * to it. */
export const typedQuestion = ({ question, speaker }) => (speaker ? question.slice(`${speaker}: `.length) : question);
