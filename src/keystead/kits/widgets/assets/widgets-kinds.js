// The kinds of widgets on the page that creates them, and the translations of that page.
const words = JSON.parse(document.getElementById("workshop").dataset.words);

// A phrase in the language of this page. The page contains the translations.
export const say = (phrase, values = {}) =>
  (words[phrase] ?? phrase).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");

export const SAMPLE_ID = "example-a1b2c3d4";

// For each kind: its texts, its element, the alt text of its picture, and sample data for the preview.
export const KINDS = {
  visit: {
    name: say("counter"),
    make: say("Create the counter"),
    ready: say("Your counter is ready."),
    element: "keystead-counter",
    alt: say("Visits"),
    sample: { id: SAMPLE_ID, total: 12045, today: 38, yesterday: 52, week: 311, month: 1204 },
  },
  like: {
    name: say("like button"),
    make: say("Create the like button"),
    ready: say("Your like button is ready."),
    element: "keystead-like",
    alt: say("Likes"),
    sample: { id: SAMPLE_ID, total: 41, userLiked: false, icon: "heart" },
  },
  ranking: {
    name: say("ranking"),
    make: say("Create the ranking"),
    ready: say("Your ranking is ready."),
    element: "keystead-ranking",
    alt: say("Ranking"),
    sample: {
      id: SAMPLE_ID,
      title: say("High scores"),
      entries: [
        { rank: 1, name: "Ada", score: 12800 },
        { rank: 2, name: "Grace", score: 9450 },
        { rank: 3, name: "Katherine", score: 7320 },
        { rank: 4, name: "Radia", score: 5110 },
        { rank: 5, name: "Barbara", score: 4990 },
      ],
      totalEntries: 5,
    },
  },
  bbs: {
    name: say("board"),
    make: say("Create the board"),
    ready: say("Your board is ready."),
    element: "keystead-bbs",
    alt: say("Board"),
    sample: {
      id: SAMPLE_ID,
      title: say("Guestbook"),
      messages: [
        {
          id: "2",
          author: "Mia",
          message: say("Found you through the webring, and stayed for the music. Greetings from Oslo!"),
          timestamp: "2026-03-04T18:20:00Z",
        },
        { id: "1", author: "Theo", message: say("First!"), timestamp: "2026-03-02T09:05:00Z" },
      ],
      totalMessages: 2,
      pagination: { page: 1, totalPages: 1, hasPrev: false, hasNext: false },
      settings: {},
    },
  },
  yokoso: {
    name: say("welcome card"),
    make: say("Create the welcome card"),
    ready: say("Your welcome card is ready."),
    element: "keystead-yokoso",
    alt: say("Welcome"),
    sample: { id: SAMPLE_ID, message: say("Welcome!"), mode: "badge", updatedAt: "2026-03-04T18:20:00Z" },
  },
};
