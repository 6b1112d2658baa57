"use strict";
// Draws the tool graph: depth in a run from left to right, or from top to bottom in a narrow window.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const svg = document.getElementById("graph");
  const done = () => document.documentElement.setAttribute("data-ready", "");
  if (!svg) return done();
  const $ = (id) => document.getElementById(id);
  const FEW = 12, space = "http://www.w3.org/2000/svg";
  const counts = [...new Set(data.edges.map((edge) => edge[2]))].sort((a, b) => a - b);
  let chosen = -1;

  const make = (name, attributes, parent, text) => {
    const element = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };

  // The twelve busiest tools, and a chosen one with its neighbours.
  const visible = () => {
    const seen = new Set(data.tools.map((_, index) => index).filter((index) => $("all").checked || index <= FEW));
    if (chosen >= 0) {
      seen.add(chosen);
      for (const [from, to] of data.edges) if (from === chosen || to === chosen) seen.add(from).add(to);
    }
    return [...seen];
  };

  const places = (shown, width, narrow) => {
    const columns = new Map();
    for (const index of [...shown].sort((a, b) => a - b)) {
      const depth = Math.round(data.tools[index].depth / 1.5);
      if (!columns.has(depth)) columns.set(depth, []);
      columns.get(depth).push(index);
    }
    const depths = [...columns.keys()].sort((a, b) => a - b);
    const most = Math.max(...[...columns.values()].map((column) => column.length));
    const height = narrow ? 60 + 90 * depths.length * Math.ceil(most / 3) : Math.max(320, 70 * most);
    const at = new Map();
    depths.forEach((depth, number) => {
      const column = columns.get(depth);
      column.forEach((index, row) => {
        const along = (number + 0.5) / depths.length + ((row % 2) - 0.5) * (0.35 / depths.length);
        const across = (row + 0.5) / column.length;
        at.set(index, narrow ? [across * width, along * height] : [along * width, across * height]);
      });
    });
    return [at, height];
  };

  const draw = () => {
    const width = Math.max(280, svg.clientWidth), narrow = width < 560, shown = visible();
    const [at, height] = places(shown, width, narrow), least = counts[+$("least").value] || 1;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const radius = (index) => 6 + 10 * Math.sqrt(data.tools[index].calls / Math.max(1, ...data.tools.map((t) => t.calls)));
    const arrows = data.edges.filter(([from, to, times]) => at.has(from) && at.has(to) && from !== to && times >= least);
    const near = new Set([chosen]);
    for (const [from, to] of arrows) if (from === chosen || to === chosen) near.add(from).add(to);
    const most = Math.max(1, ...arrows.map((edge) => edge[2]));
    for (const [from, to, times, failed] of arrows) {
      const [x1, y1] = at.get(from), [x2, y2] = at.get(to), length = Math.hypot(x2 - x1, y2 - y1) || 1;
      const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length], bend = Math.min(30, length / 6);
      const [cx, cy] = [(x1 + x2) / 2 - uy * bend, (y1 + y2) / 2 + ux * bend];
      const back = radius(to) + 4, tip = Math.hypot(x2 - cx, y2 - cy) || 1;
      const [tx, ty] = [(x2 - cx) / tip, (y2 - cy) / tip], [ex, ey] = [x2 - tx * back, y2 - ty * back];
      const dim = chosen >= 0 && from !== chosen && to !== chosen ? " dim" : "";
      const path = make("path", { d: `M${x1} ${y1}Q${cx} ${cy} ${ex} ${ey}`, class: `edge${dim}`,
        "stroke-width": 1 + 4 * Math.sqrt(times / most) }, svg);
      make("title", {}, path, `${data.tools[from].name} → ${data.tools[to].name}: ${times} times, ${failed} failed`);
      make("path", { d: `M${ex + tx * 6} ${ey + ty * 6}L${ex - ty * 4} ${ey + tx * 4}L${ex + ty * 4} ${ey - tx * 4}Z`,
        class: `head${dim}` }, svg);
    }
    for (const index of shown) {
      const tool = data.tools[index], [x, y] = at.get(index);
      const kind = tool.start ? " start" : tool.writes ? " writes" : "";
      const dim = chosen >= 0 && !near.has(index) ? " dim" : "", mark = index === chosen ? " chosen" : "";
      const group = make("g", { class: `node${kind}${dim}${mark}`, tabindex: 0, "data-tool": tool.name }, svg);
      make("circle", { cx: x, cy: y, r: radius(index) }, group);
      const room = Math.max(8, Math.floor((narrow ? width / 3 : 150) / 7));
      const label = tool.name.length > room ? `${tool.name.slice(0, room - 1)}…` : tool.name;
      const half = 3.5 * label.length;
      make("text", { x: Math.min(width - half, Math.max(half, x)), y: y + radius(index) + 14 }, group, label);
      make("title", {}, group, `${tool.name}: ${tool.calls} calls, ${tool.failed} failed`);
      group.addEventListener("click", () => choose(index === chosen ? -1 : index));
      group.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(index); });
    }
    $("least-value").textContent = least;
    const left = data.tools.length - shown.length + data.left_out;
    $("drawn").textContent = left ? `${shown.length} of ${shown.length + left} tools are drawn.` : "";
  };

  const line = (parent, text, name = "p") => {
    const element = document.createElement(name);
    element.textContent = text;
    parent.append(element);
  };

  const choose = (index) => {
    chosen = index;
    const panel = $("details");
    panel.replaceChildren();
    if (index < 0) line(panel, "Choose a tool to see its record.");
    else {
      const tool = data.tools[index], name = (other) => data.tools[other].name;
      line(panel, tool.name, "h3");
      line(panel, `${tool.calls} calls, ${tool.failed} failed, ${tool.skipped} without the model.`);
      if (tool.right + tool.wrong) line(panel, `Checked: ${tool.right} of ${tool.right + tool.wrong} right.`);
      if (tool.writes) line(panel, `May change something: ${tool.why}.`);
      for (const [from, to, times] of data.edges.filter((edge) => edge[0] === index || edge[1] === index).slice(0, 12))
        line(panel, `${name(from)} → ${name(to)}: ${times} times`);
      for (const [from, to, hits, misses, parameter, origin] of data.flows.filter((flow) => flow[1] === index).slice(0, 12))
        line(panel, `${parameter} ← ${origin} of ${name(from)}: ${hits} of ${hits + misses} times`);
    }
    draw();
  };

  for (const tool of data.tools) {
    const option = document.createElement("option");
    option.value = tool.name;
    $("names").append(option);
  }
  $("least").max = Math.max(0, counts.length - 1);
  $("least").addEventListener("input", draw);
  $("all").addEventListener("change", draw);
  $("find").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    choose(wanted ? data.tools.findIndex((tool) => tool.name.toLowerCase().includes(wanted)) : -1);
  });
  new ResizeObserver(() => draw()).observe(svg);
  draw();
  done();
})();
