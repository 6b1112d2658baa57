"use strict";

/* Sorting and filtering of the tables, which are complete without it. */
const Tables = (() => {
  const valueOf = (cell) => {
    const text = cell.dataset.value ?? cell.textContent.trim().replace(/,/g, "");
    const number = Number(text);
    return cell.classList.contains("n") && !Number.isNaN(number) ? number : text;
  };

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sortable(table) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const before = heading.getAttribute("aria-sort");
        const first = heading.classList.contains("n") ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const order = before === first ? other : first;
        for (const h of headings) h.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const rows = [...table.tBodies[0].rows];
        rows.sort((r, s) => sign * compare(valueOf(r.cells[column]), valueOf(s.cells[column])));
        table.tBodies[0].append(...rows);
      });
    });
  }

  function filterable(input) {
    const folded = document.getElementById(input.dataset.with);
    const tables = [document.getElementById(input.dataset.filters), folded?.querySelector("table")];
    const told = document.querySelector(`[data-counts="${input.dataset.filters}"]`);
    const rows = tables.flatMap((table) => (table ? [...table.tBodies[0].rows] : []));
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      if (folded) folded.open = words.length > 0 && !!folded.querySelector("tbody tr:not([hidden])");
      told.textContent = words.length ? `${shown} of ${rows.length} shown.` : "";
    });
  }

  function start() {
    document.querySelectorAll("main table").forEach(sortable);
    document.querySelectorAll("input[data-filters]").forEach(filterable);
  }

  return { start };
})();
