/* What is told about the tool that was chosen. Names come from outside: they are only ever set as text. */
const Panel = (() => {
  const LISTED = 12;

  const number = (n) => n.toLocaleString("en-US");

  /* A few are not none, and nearly all are not all. */
  function percent(part, whole) {
    if (!whole) return "–";
    const rounded = Math.round((100 * part) / whole);
    if (rounded === 0 && part > 0) return "<1 %";
    return rounded === 100 && part < whole ? ">99 %" : `${rounded} %`;
  }

  const times = (n) => (n === 1 ? "once" : `${number(n)} times`);

  function make(tag, text = "", name = "") {
    const made = document.createElement(tag);
    made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  function of({ tools, arrows, leaving, flows, rules }, choose) {
    function link(i) {
      const button = make("button", tools[i].name);
      button.type = "button";
      button.addEventListener("click", () => choose(i));
      return button;
    }

    function list(into, title, rows, all) {
      if (!rows.length) return;
      into.append(make("h3", title));
      const made = make("ol");
      for (const [left, right] of rows.slice(0, all ? rows.length : LISTED)) {
        const item = make("li");
        item.append(left instanceof Node ? left : make("span", left), make("span", right));
        made.append(item);
      }
      into.append(made);
      if (!all && rows.length > LISTED) into.append(make("p", `and ${number(rows.length - LISTED)} more`, "quiet"));
    }

    function both(...parts) {
      const made = make("span");
      made.append(...parts);
      return made;
    }

    function show(panel, chosen) {
      panel.replaceChildren();
      if (chosen < 0) {
        panel.append(make("p", "No tool chosen", "title"));
        panel.append(make("p", "Click a tool in the graph, find it by name, or click its name in a table: its arrows stand out and its record is told here.", "quiet"));
        list(panel, "Most used", tools.filter((t) => !t.start).slice(0, 8).map((t) => [link(t.i), number(t.calls)]), true);
        return;
      }
      const tool = tools[chosen];
      const clear = make("button", "clear ✕", "clear");
      clear.type = "button";
      clear.addEventListener("click", () => choose(-1));
      const top = make("div", "", "top");
      top.append(make("p", tool.name, "title"), clear);
      panel.append(top);
      if (!tool.start) {
        const figures = [["calls", number(tool.calls)], ["failed", `${number(tool.failed)} (${percent(tool.failed, tool.calls)})`]];
        figures.push(["made without the model", number(tool.skipped)]);
        figures.push(["checked proposals", tool.right + tool.wrong ? `${number(tool.right)} right, ${number(tool.wrong)} wrong` : "none"]);
        list(panel, "Record", figures, true);
        if (tool.changes) panel.append(make("p", `May change something: ${tool.changes}.`, "changes"));
      }
      const next = arrows.filter((a) => a.from === tool.i);
      const before = arrows.filter((a) => a.to === tool.i);
      const came = before.reduce((sum, a) => sum + a.seen, 0);
      list(panel, "Followed by", next.map((a) => [link(a.to), `${number(a.seen)} · ${percent(a.seen, leaving[tool.i])}`]));
      list(panel, "Comes after", before.map((a) => [link(a.from), `${number(a.seen)} · ${percent(a.seen, came)}`]));
      const takes = flows.filter((f) => f[1] === tool.i);
      const gives = flows.filter((f) => f[0] === tool.i);
      const share = (f) => `${number(f[2])} of ${number(f[2] + f[3])}`;
      list(panel, "Its arguments had the value of", takes.map((f) => [both(`${f[4]} ← ${f[5]} of `, link(f[0])), share(f)]));
      list(panel, "Its values went into", gives.map((f) => [both(`${f[5]} → ${f[4]} of `, link(f[1])), share(f)]));
      const about = rules.filter((r) => r[1] === tool.i);
      list(panel, "Rules that propose it (hits of checks)", about.map((r) => [`after ${r[2]}: ${r[3]}`, `${number(r[4])} of ${number(r[4] + r[5])}`]));
    }

    return { show };
  }

  return { of, make, number, percent, times };
})();
