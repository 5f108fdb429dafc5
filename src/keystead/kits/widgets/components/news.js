// Notifies other elements of the same widget about a change: on this page, and in other tabs of this site.

const listeners = new Set();
const channel = openChannel();

function openChannel() {
  try {
    const channel = new BroadcastChannel("keystead-widgets");
    channel.addEventListener("message", ({ data }) => notifyPage(data));
    return channel;
  } catch {
    return null; // not allowed on this page: other tabs refresh when they become visible
  }
}

function notifyPage(change, sender = null) {
  for (const listener of [...listeners]) if (listener !== sender) listener(change);
}

// Calls `listener({ base, service, id })` for each change by others. Returns a function that unsubscribes.
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// `sender` is the listener that caused the change, and is not called.
export function notify(change, sender) {
  notifyPage(change, sender);
  notifyOtherTabs(change);
}

export function notifyOtherTabs(change) {
  channel?.postMessage(change);
}
