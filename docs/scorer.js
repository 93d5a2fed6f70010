// Ranks the results of the site's search: first pages and sections whose title is the query, then
// guides and reference, then decisions and measurements. Sphinx copies it into its own script.
// `var`, because the script has a `Scorer` of its own.
var Scorer = {
  score: ([page, title, , , score]) => {
    const name = (text) => text.trim().toLowerCase().replace(/^tl\./, "");
    const query = new URLSearchParams(location.search).get("q") || "";
    const isTitle = name(title.split(" > ").at(-1)) === name(query);
    const isBackground = /^(design|performance)\b/.test(page);
    return score + (isTitle ? 100 : 0) - (isBackground ? 10 : 0);
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
