// The live changes: rows of a table, newest first, and a count for each family. Everything is set as text.

const table = document.getElementById("live");
const MOST_ROWS = 200;
const LANGUAGE = document.documentElement.lang;

if (table) {
  const rows = table.tBodies[0];
  const state = document.getElementById("live-state");
  const counts = new Map();
  let isPaused = false;

  const show = (text, isGood) => {
    state.textContent = text;
    state.className = `state ${isGood ? "good" : "bad"}`;
  };

  const count = (family, number) => {
    if (!counts.has(family)) {
      const item = document.createElement("li");
      item.className = "count";
      document.getElementById("live-counts").append(item);
      counts.set(family, { item, number: 0 });
    }
    const one = counts.get(family);
    one.number += number;
    one.item.textContent = `${family} ${one.number.toLocaleString(LANGUAGE)}`;
  };

  const add = (change) => {
    const row = rows.insertRow(0);
    row.insertCell().textContent = new Date(change.at).toLocaleTimeString(LANGUAGE);
    const kind = document.createElement("span");
    kind.className = `state ${change.kind === "written" ? "good" : "bad"}`;
    kind.textContent = table.dataset[change.kind] + (change.count > 1 ? ` ${change.count}` : "");
    row.insertCell().append(kind);
    row.insertCell().textContent = change.family;
    const name = document.createElement("code");
    name.textContent = change.key;
    const cell = row.insertCell();
    if (change.url) {
      const link = document.createElement("a");
      link.href = change.url;
      link.dataset.row = "";
      link.append(name);
      cell.append(link);
    } else {
      cell.append(name);
    }
    while (rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
    document.getElementById("live-empty").hidden = true;
  };

  const source = new EventSource(table.dataset.source);
  source.addEventListener("watching", () => show(table.dataset.open, true));
  source.addEventListener("error", () => {
    // A refusal is final: the browser does not try again.
    const isOver = source.readyState === EventSource.CLOSED;
    show(isOver ? table.dataset.bye : table.dataset.lost, false);
  });
  source.addEventListener("bye", () => {
    source.close();
    show(table.dataset.bye, false);
  });
  source.addEventListener("problem", (event) => {
    source.close();
    const problem = document.getElementById("live-problem");
    problem.textContent = JSON.parse(event.data);
    problem.hidden = false;
  });
  source.addEventListener("change", (event) => {
    const change = JSON.parse(event.data);
    count(change.family || change.kind, change.count);
    if (!isPaused) add(change);
  });

  const pause = document.getElementById("pause");
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
  });
}
