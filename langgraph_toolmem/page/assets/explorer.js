/* The tool graph: which tools and arrows are drawn, where, and what is told about the one that was chosen.
   Geometry is worked out in pixels and turned to the figure's units, so that dots, arrow heads and labels keep
   their size while zooming takes them apart. */
const Explorer = (() => {
  const MOST_AT_FIRST = 40;
  const ARROWS_AT_FIRST = 150;
  const ARROWS_PER_TOOL = 2.2;
  const ARROWS_OF_CHOSEN = 24;
  const NARROW = 520;

  const { shorten, inTwo, places, curve, bends } = Geometry;
  const { make, number, percent, times } = Panel;

  function start(figure, data, colours) {
    const element = (id) => document.getElementById(id);
    const source = (name) => figure.document.get_model_by_name(name);
    const [nodes, edges, heads, flows, labels] = ["nodes", "edges", "heads", "flows", "labels"].map(source);
    const tools = data.tools.map((tool, i) => ({ ...tool, i, calls: tool.ok + tool.failed }));
    const arrows = data.edges.map(([from, to, seen, ok, failed, chosen]) => ({ from, to, seen, ok, failed, chosen }));
    const streams = paired(data.flows);
    const most = Math.max(1, ...tools.map((tool) => tool.calls));
    const widest = Math.max(1, ...arrows.map((arrow) => arrow.seen), ...streams.map((stream) => stream.seen));
    const leaving = tools.map(() => 0);
    for (const arrow of arrows) leaving[arrow.from] += arrow.seen;
    const starts = new Set(tools.filter((tool) => tool.start).map((tool) => tool.i));
    const panel = Panel.of({ tools, arrows, leaving, flows: data.flows, rules: data.rules }, choose);
    const state = { chosen: -1, least: 1, most: MOST_AT_FIRST, flow: false };
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `12px ${getComputedStyle(document.documentElement).fontFamily}`;

    /* All dataflow between two tools is one dashed arrow. */
    function paired(rows) {
      const found = new Map();
      for (const [from, to, hits, misses, parameter, origin] of rows) {
        const key = `${from}>${to}`;
        if (!found.has(key)) found.set(key, { from, to, seen: 0, reasons: [] });
        const pair = found.get(key);
        pair.seen = Math.max(pair.seen, hits);
        pair.reasons.push({ hits, misses, parameter, origin });
      }
      return [...found.values()];
    }

    /* --- what is drawn --- */

    function selection() {
      const counted = tools.filter((tool) => !tool.start);
      const kept = new Set(counted.slice(0, state.most).map((tool) => tool.i));
      for (const tool of tools) if (tool.start) kept.add(tool.i);
      const mine = (arrow) => arrow.from === state.chosen || arrow.to === state.chosen;
      const around = state.chosen < 0 ? [] : arrows.filter(mine).slice(0, ARROWS_OF_CHOSEN);
      if (state.chosen >= 0) kept.add(state.chosen);
      for (const arrow of around) kept.add(arrow.from).add(arrow.to);
      const own = new Set(around);
      const within = (arrow) => kept.has(arrow.from) && kept.has(arrow.to);
      const drawn = arrows.filter((arrow) => within(arrow) && (arrow.seen >= state.least || own.has(arrow)));
      const dashed = state.flow
        ? streams.filter((stream) => within(stream) && (stream.seen >= state.least || mine(stream)))
        : [];
      const near = new Set([state.chosen]);
      for (const arrow of [...drawn, ...dashed].filter(mine)) near.add(arrow.from).add(arrow.to);
      return { kept: tools.filter((tool) => kept.has(tool.i)), drawn, dashed, near, mine };
    }

    /* --- how it is drawn --- */

    /* Crowded pictures are drawn smaller, and grow while zooming makes room. */
    const scale = () => {
      const zoom = size[0] / (figure.x_range.end - figure.x_range.start);
      return Math.min(1, scene.places.scale * zoom) * (size[0] < NARROW ? 0.8 : 1);
    };
    const radius = (tool) => (tool.start ? 8 : scale() * (6 + 15 * Math.sqrt(tool.calls / most)));
    const stroke = (seen) => 1 + scale() * 6 * Math.sqrt(seen / widest);

    function arrowText(arrow) {
      const lines = [`${times(arrow.seen)}, ${percent(arrow.seen, leaving[arrow.from])} of what came next`];
      lines.push(arrow.failed ? `${number(arrow.failed)} of the calls failed` : "no call failed");
      if (arrow.seen > arrow.chosen) lines.push(`${number(arrow.seen - arrow.chosen)} made by the shortcut`);
      return lines.join("\n");
    }

    function streamText(stream) {
      const told = stream.reasons.slice(0, 6);
      const lines = told.map((r) => `${r.parameter} ← ${r.origin} (${number(r.hits)} of ${number(r.hits + r.misses)})`);
      if (stream.reasons.length > told.length) lines.push(`and ${stream.reasons.length - told.length} more`);
      return lines.join("\n");
    }

    function toolText(tool) {
      if (tool.start) return "where every run begins";
      const lines = [`${number(tool.calls)} calls, ${number(tool.failed)} failed`];
      if (tool.changes) lines.push("may change something");
      if (tool.skipped) lines.push(`${number(tool.skipped)} made without asking the model`);
      if (tool.right + tool.wrong) lines.push(`checked: ${number(tool.right)} right, ${number(tool.wrong)} wrong`);
      return lines.join("\n");
    }

    let scene = null;
    let size = [0, 0];

    /* A new choice of tools: places them anew and shows the whole. */
    function arrange() {
      size = [figure.inner_width, figure.inner_height];
      if (!(size[0] > 40 && size[1] > 40)) return;
      scene = selection();
      scene.places = places(scene.kept, scene.drawn, starts, ...size);
      frame();
      scene.bends = bends([...scene.drawn, ...scene.dashed], scene.places.found, (i) => radius(tools[i]));
      draw();
      tellWhatIsDrawn();
    }

    /* The same tools, other arrows or another choice: everybody stays where they were. */
    function refresh() {
      const before = scene;
      scene = selection();
      const same = before && before.kept.length === scene.kept.length && scene.kept.every((t) => before.places.found.has(t.i));
      if (!same) {
        arrange();
        return;
      }
      scene.places = before.places;
      scene.bends = bends([...scene.drawn, ...scene.dashed], scene.places.found, (i) => radius(tools[i]));
      draw();
      tellWhatIsDrawn();
    }

    function frame() {
      const { x_range: x, y_range: y } = figure;
      x.setv({ start: 0, end: size[0], reset_start: 0, reset_end: size[0] });
      y.setv({ start: 0, end: size[1], reset_start: 0, reset_end: size[1] });
    }

    function draw() {
      if (!scene) return;
      const c = colours();
      const kx = size[0] / (figure.x_range.end - figure.x_range.start);
      const ky = size[1] / (figure.y_range.end - figure.y_range.start);
      const pixel = new Map();
      for (const tool of scene.kept) {
        const [x, y] = scene.places.found.get(tool.i);
        pixel.set(tool.i, [x * kx, -y * ky]);
      }
      const unit = (p) => [p[0] / kx, -p[1] / ky];
      const lit = (arrow) => state.chosen < 0 || scene.mine(arrow);
      const shape = (arrow) => {
        const head = 5 + 1.3 * stroke(arrow.seen);
        const [from, to] = [pixel.get(arrow.from), pixel.get(arrow.to)];
        return curve(from, to, radius(tools[arrow.from]), radius(tools[arrow.to]), head, scene.bends.get(arrow));
      };
      const between = (arrow) => `${tools[arrow.from].name} → ${tools[arrow.to].name}`;
      const lines = { xs: [], ys: [], width: [], colour: [], alpha: [], head: [], body: [] };
      const dashes = { xs: [], ys: [], width: [], colour: [], alpha: [], head: [], body: [] };
      const tips = { xs: [], ys: [], colour: [], alpha: [] };
      const put = (into, arrow, width, colour, alpha, body) => {
        const { line, triangle } = shape(arrow);
        const [points, corners] = [line.map(unit), triangle.map(unit)];
        into.xs.push(points.map((p) => p[0]));
        into.ys.push(points.map((p) => p[1]));
        into.width.push(width);
        into.colour.push(colour);
        into.alpha.push(alpha);
        into.head.push(between(arrow));
        into.body.push(body);
        tips.xs.push(corners.map((p) => p[0]));
        tips.ys.push(corners.map((p) => p[1]));
        tips.colour.push(colour);
        tips.alpha.push(alpha);
      };
      /* The strongest come last, on top; what touches the chosen tool comes over everything. */
      const upward = (list) => [...list].sort((a, b) => lit(a) - lit(b) || a.seen - b.seen);
      for (const s of upward(scene.dashed)) put(dashes, s, 1.6, c.flow, lit(s) ? 0.85 : 0.08, streamText(s));
      for (const a of upward(scene.drawn)) {
        const colour = c.success(a.ok / Math.max(1, a.ok + a.failed));
        const faint = (0.3 + 0.5 * Math.sqrt(a.seen / widest)) * (state.flow ? 0.5 : 1);
        const alpha = state.chosen < 0 ? faint : lit(a) ? 0.9 : 0.06;
        put(lines, a, stroke(a.seen), colour, alpha, arrowText(a));
      }
      const dots = { x: [], y: [], size: [], marker: [], colour: [], alpha: [], line: [], line_width: [], head: [], body: [], tool: [] };
      for (const tool of scene.kept) {
        const [x, y] = scene.places.found.get(tool.i);
        const near = state.chosen < 0 || scene.near.has(tool.i);
        dots.x.push(x);
        dots.y.push(y);
        dots.size.push((tool.changes ? 2.7 : 2) * radius(tool));
        dots.marker.push(tool.start ? "square" : tool.changes ? "diamond" : "circle");
        dots.colour.push(tool.start ? c.start : tool.calls ? c.success(tool.ok / tool.calls) : c.neutral);
        dots.alpha.push(near ? 1 : 0.2);
        dots.line.push(tool.i === state.chosen ? c.text : c.surface);
        dots.line_width.push(tool.i === state.chosen ? 3 : 1.5);
        dots.head.push(tool.name);
        dots.body.push(toolText(tool));
        dots.tool.push(tool.i);
      }
      flows.data = dashes;
      edges.data = lines;
      heads.data = tips;
      nodes.data = dots;
      labels.data = labelled(pixel, kx);
    }

    /* Names, as many as fit without covering each other: the chosen one and its neighbours first. */
    function labelled(pixel, kx) {
      const room = Math.max(16, Math.floor((scene.places.step * kx * 0.98) / 6.5));
      const urgent = (tool) => (tool.i === state.chosen ? 3 : state.chosen >= 0 && scene.near.has(tool.i) ? 2 : tool.start ? 1 : 0);
      const order = [...scene.kept].sort((a, b) => urgent(b) - urgent(a) || b.calls - a.calls);
      const taken = [];
      const spots = scene.kept.map((tool) => {
        const [[x, y], r] = [pixel.get(tool.i), 0.7 * radius(tool)];
        return [tool.i, [x - r, y - r, x + r, y + r]];
      });
      const made = { x: [], y: [], text: [], offset: [], alpha: [], head: [], body: [] };
      for (const tool of order) {
        const text = tool.i === state.chosen ? shorten(tool.name, 48) : inTwo(tool.name, room);
        const parts = text.split("\n");
        const half = Math.max(...parts.map((part) => pen.measureText(part).width)) / 2 + 4;
        const [middle, y] = pixel.get(tool.i);
        const x = Math.max(half, Math.min(size[0] * kx - half, middle));
        const offset = tool.start ? -radius(tool) - 18 : radius(tool) + 3;
        const top = y + offset;
        const box = [x - half, top, x + half, top + 15 * parts.length];
        const apart = (b) => box[2] < b[0] || b[2] < box[0] || box[3] < b[1] || b[3] < box[1];
        const free = taken.every(apart) && spots.every(([i, b]) => i === tool.i || apart(b));
        if (!free && tool.i !== state.chosen) continue;
        taken.push(box);
        made.x.push(x / kx);
        made.y.push(scene.places.found.get(tool.i)[1]);
        made.text.push(text);
        made.head.push(tool.name);
        made.body.push(toolText(tool));
        made.offset.push(offset);
        made.alpha.push(state.chosen < 0 || scene.near.has(tool.i) ? 1 : 0.25);
      }
      return made;
    }

    /* --- what is told --- */

    function tellWhatIsDrawn() {
      const all = tools.filter((tool) => !tool.start).length + data.left_out.tools;
      const shown = scene.kept.filter((tool) => !tool.start).length;
      const total = arrows.length + data.left_out.edges;
      const which = shown > state.most ? "the most used ones and those around the chosen one" : "the most used ones";
      const parts = [];
      parts.push(shown < all ? `${number(shown)} of ${number(all)} tools, ${which}` : `all ${number(all)} tools`);
      parts.push(scene.drawn.length < total ? `${number(scene.drawn.length)} of ${number(total)} arrows` : `all ${number(total)} arrows`);
      if (state.flow) parts.push(`${number(scene.dashed.length)} of ${number(streams.length)} dashed ones`);
      const others = state.chosen < 0 ? "" : " The chosen tool's strongest arrows are drawn however rare.";
      element("drawn").textContent = `Drawn: ${parts.join(", ")}.${others} Drag to move, Ctrl and wheel or the buttons to zoom.`;
    }

    function choose(i) {
      if (i === state.chosen) return;
      state.chosen = i;
      element("find").value = i >= 0 && !tools[i].start ? tools[i].name : "";
      refresh();
      const at = i < 0 ? -1 : nodes.data.tool.indexOf(i);
      nodes.selected.indices = at < 0 ? [] : [at];
      panel.show(element("details"), state.chosen);
    }

    /* --- controls --- */

    const seen = [...new Set([...arrows, ...streams].map((a) => a.seen))].sort((a, b) => a - b);
    const steps = seen.length ? seen : [1];

    function applyLeast() {
      const input = element("least");
      state.least = steps[Number(input.value)];
      element("least-value").textContent = times(state.least);
      input.setAttribute("aria-valuetext", times(state.least));
    }

    /* As many arrows as can be told apart among the tools that are drawn. */
    function calm() {
      const kept = new Set(selection().kept.map((tool) => tool.i));
      const enough = Math.min(ARROWS_AT_FIRST, Math.max(20, ARROWS_PER_TOOL * kept.size));
      const within = arrows.filter((a) => kept.has(a.from) && kept.has(a.to));
      const at = steps.findIndex((n) => within.filter((a) => a.seen >= n).length <= enough);
      element("least").value = String(at < 0 ? steps.length - 1 : at);
      applyLeast();
    }

    function threshold() {
      element("least").max = String(steps.length - 1);
      calm();
      element("least").addEventListener("input", () => {
        applyLeast();
        refresh();
      });
    }

    function amounts() {
      const all = tools.filter((tool) => !tool.start).length;
      const select = element("most");
      const steps = [10, 20, MOST_AT_FIRST, 80, 160].filter((n) => n < all);
      for (const n of [...steps, all]) {
        const option = make("option", n === all ? `all ${number(all)}` : `${n} most used`);
        option.value = String(n);
        select.append(option);
      }
      state.most = all <= MOST_AT_FIRST * 1.25 ? all : MOST_AT_FIRST;
      select.value = String(state.most);
      select.addEventListener("change", () => {
        state.most = Number(select.value);
        calm();
        arrange();
      });
    }

    function search() {
      const names = element("tool-names");
      for (const tool of tools) {
        if (tool.start) continue;
        const option = document.createElement("option");
        option.value = tool.name;
        names.append(option);
      }
      const input = element("find");
      const find = (loose) => {
        const wanted = input.value.trim().toLowerCase();
        if (!wanted) return choose(-1);
        const real = tools.filter((tool) => !tool.start);
        const found =
          real.find((tool) => tool.name.toLowerCase() === wanted) ??
          (loose ? real.find((tool) => tool.name.toLowerCase().includes(wanted)) : undefined);
        if (found) choose(found.i);
        return undefined;
      };
      input.addEventListener("input", () => find(false));
      input.addEventListener("change", () => find(true));
      input.addEventListener("keydown", (event) => {
        if (event.key === "Escape") choose(-1);
        if (event.key === "Enter") find(true);
      });
    }

    function fromTables() {
      const byName = new Map(tools.map((tool) => [tool.name, tool.i]));
      document.addEventListener("click", (event) => {
        const button = event.target instanceof Element ? event.target.closest("button[data-tool]") : null;
        if (button && byName.has(button.dataset.tool)) {
          choose(byName.get(button.dataset.tool));
          element("graph-section").scrollIntoView({ block: "start" });
        }
      });
    }

    /* At most once per frame of the screen. */
    function paced(work) {
      let waiting = false;
      return () => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => {
          waiting = false;
          work();
        });
      };
    }
    const arrangeSoon = paced(arrange);
    const drawSoon = paced(draw);

    function resized() {
      if (Math.abs(figure.inner_width - size[0]) > 1 || Math.abs(figure.inner_height - size[1]) > 1) arrangeSoon();
    }

    let span = 0;
    function zoomed() {
      const now = figure.x_range.end - figure.x_range.start;
      if (Math.abs(now - span) > 1e-6 * span) {
        span = now;
        drawSoon();
      }
    }

    amounts();
    threshold();
    search();
    fromTables();
    element("flow").addEventListener("change", (event) => {
      state.flow = event.target.checked;
      refresh();
    });
    figure.on_change([figure.properties.inner_width, figure.properties.inner_height], resized);
    figure.x_range.on_change([figure.x_range.properties.start, figure.x_range.properties.end], zoomed);
    nodes.selected.on_change(nodes.selected.properties.indices, () => {
      const at = nodes.selected.indices[0];
      choose(at === undefined ? -1 : nodes.data.tool[at]);
    });
    panel.show(element("details"), state.chosen);
    arrange();
    return { draw };
  }

  return { start };
})();
