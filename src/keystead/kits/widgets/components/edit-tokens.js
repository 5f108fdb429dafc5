// The tokens that let whoever wrote a message change it. A browser keeps them for its own messages, per board, as
// { messageId: token } under bbs_edit_{id}; where it keeps nothing, this page does until it is left.

const here = new Map();

export const nameOfTokens = (board) => `bbs_edit_${board}`;

export function editTokens(board) {
  return { ...kept(board), ...here.get(board) };
}

export function keepEditToken(board, message, token) {
  change(board, (tokens) => ({ ...tokens, [message]: token }));
}

export function dropEditToken(board, message) {
  change(board, ({ [message]: _, ...rest }) => rest);
}

function change(board, changed) {
  here.set(board, changed(here.get(board) ?? {}));
  try {
    const rest = changed(kept(board));
    if (Object.keys(rest).length) localStorage.setItem(nameOfTokens(board), JSON.stringify(rest));
    else localStorage.removeItem(nameOfTokens(board));
  } catch {
    // Storage is blocked or full.
  }
}

function kept(board) {
  try {
    const read = JSON.parse(localStorage.getItem(nameOfTokens(board)) ?? "{}");
    return read && typeof read === "object" && !Array.isArray(read) ? read : {};
  } catch {
    return {};
  }
}
