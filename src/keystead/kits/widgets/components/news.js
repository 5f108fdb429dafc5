// That a widget has changed, told to the others of the same widget: in this page, and in other tabs of this site.

const listeners = new Set();
const channel = opened();

function opened() {
  try {
    const made = new BroadcastChannel("keystead-widgets");
    made.addEventListener("message", ({ data }) => spread(data));
    return made;
  } catch {
    return null; // a page that may not: each tab learns of it when it is looked at again
  }
}

function spread(news, teller = null) {
  for (const heard of [...listeners]) if (heard !== teller) heard(news);
}

// Calls `heard({ base, service, id })` at each change that others tell of; gives what ends that.
export function listen(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

// `teller` is the listener of whoever tells it, and knows already.
export function tell(news, teller) {
  spread(news, teller);
  tellOtherTabs(news);
}

export function tellOtherTabs(news) {
  channel?.postMessage(news);
}
