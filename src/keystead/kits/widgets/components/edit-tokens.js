// Edit tokens of this browser's own messages, in localStorage, per board: { messageId: token } under bbs_edit_{id}.
// If storage is blocked, they last as long as the page.

const inMemory = new Map();

export const storageKey = (board) => `bbs_edit_${board}`;

export function editTokens(board) {
  return { ...stored(board), ...inMemory.get(board) };
}

export function saveEditToken(board, message, token) {
  change(board, (tokens) => ({ ...tokens, [message]: token }));
}

export function dropEditToken(board, message) {
  change(board, ({ [message]: _, ...rest }) => rest);
}

function change(board, update) {
  inMemory.set(board, update(inMemory.get(board) ?? {}));
  try {
    const rest = update(stored(board));
    if (Object.keys(rest).length) localStorage.setItem(storageKey(board), JSON.stringify(rest));
    else localStorage.removeItem(storageKey(board));
  } catch {
    // Storage is blocked or full.
  }
}

function stored(board) {
  try {
    const read = JSON.parse(localStorage.getItem(storageKey(board)) ?? "{}");
    return read && typeof read === "object" && !Array.isArray(read) ? read : {};
  } catch {
    return {};
  }
}
