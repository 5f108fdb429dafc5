// The order of search results. Sphinx counts a heading anywhere like the heading of a page; here a page whose own name or first
// heading has what was typed comes first, then pages written by hand, then generated ones and translations.
const words = (new URLSearchParams(window.location.search).get("q") || "")
  .toLowerCase()
  .split(/[^\p{L}\p{N}]+/u)
  .filter((word) => word.length > 2)
  .map((word) => word.replace(/(ing|ies|es|s|e)$/, ""));

var Scorer = {
  score: ([page, title, anchor, _description, score]) => {
    const heading = title.split(" > ")[0].toLowerCase();
    const name = page.toLowerCase();
    const named = words.filter((word) => name.includes(word) || heading.includes(word)).length / (words.length || 1);
    const isItsName = words.includes(heading.replace(/(ing|ies|es|s|e)$/, ""));
    const isGenerated = /^(keys|reference)\//.test(page);
    const isTranslated = /^(ja|ko)\//.test(page);
    const isBackground = ["architecture", "benchmarks", "compare", "index"].includes(page);
    const hidden = isTranslated ? 40 : isGenerated || isBackground ? 12 : 0;
    return score + (isGenerated ? 0 : 30 * named + (isItsName ? 20 : 0)) + (anchor ? 0 : 2) - hidden;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
