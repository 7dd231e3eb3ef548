/** Maximum length of a leader's value, in bytes: a note, less its term. */
export const VALUE_BYTES_MAX = 1_002;

/** The leader, as an observer knows it. */
export interface Leader {
  /** The term: larger than that of every earlier leader. */
  readonly term: number;
  /** The number of the proclamation within its term, from 1. */
  readonly sequence: number;
  /** The proclaimed value, such as an address. `value.toString()` is its text. */
  readonly value: Buffer;
}

/** Returns the note of a leader, as every client of an election writes it: `term 1795234601882918 10.0.0.1:80`. */
export function noteOf(term: number, value: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`term ${term} `), value]);
}

/** Returns the term and the value of a note; `undefined` if it is another text. */
export function readNote(note: Buffer): { term: number; value: Buffer } | undefined {
  const match = /^term ([1-9]\d{0,15}) /.exec(note.toString('latin1'));
  const term = Number(match?.[1]);
  if (!match || !Number.isSafeInteger(term)) return undefined;
  return { term, value: note.subarray(match[0].length) };
}
