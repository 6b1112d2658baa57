/* Where tools stand and how arrows run between them; numbers in, numbers out. */
const Geometry = (() => {
  const CURVE_POINTS = 36;
  const BENDS = [0.13, 0.22, 0.32, -0.22, 0.45, -0.4];
  const DASHED_BENDS = [-0.24, 0.34, -0.4, 0.5];
  const MOST_BENT = 500;
  const ROOM_OF_COLUMN = 118;
  const ROOM_OF_ROW = 30;
  const ROOM_OF_TOOL = 62;

  /* A name that is too long loses its server or module first, then its middle. */
  function shorten(text, most) {
    if (text.length <= most) return text;
    const last = text.match(/^.*(?:[.:/]|__)(.+)$/)?.[1] ?? text;
    if (last.length < most) return `…${last}`;
    const tail = Math.floor((most - 1) * 0.65);
    return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
  }

  /* In two lines if it is too long for one: between words, as near to the middle as may be. */
  function inTwo(text, most) {
    if (text.length <= most) return text;
    const short = shorten(text, 2 * most - 2);
    const cost = (at) => Math.abs(2 * at - short.length) - (/[^\p{L}\p{N}]/u.test(short[at - 1]) ? most : 0);
    const cuts = [...short].map((_, i) => i + 1).filter((at) => at <= most && short.length - at <= most);
    const cut = cuts.reduce((best, at) => (cost(at) < cost(best) ? at : best), cuts[0]);
    return cut ? `${short.slice(0, cut)}\n${short.slice(cut)}` : short;
  }

  /* Columns from the start of a run on; in a column, tools that follow each other stay at one height. */
  function places(kept, links, starts, width, height) {
    const flow = kept.filter((tool) => !tool.start).sort((a, b) => a.depth - b.depth || a.rank - b.rank);
    const start = kept.filter((tool) => tool.start);
    const fit = Math.max(2, Math.min(flow.length, Math.floor(width / ROOM_OF_COLUMN) - start.length));
    const needed = Math.ceil(flow.length / Math.floor((height - 68) / ROOM_OF_ROW));
    const count = Math.min(Math.max(fit, needed), Math.max(1, Math.round(Math.sqrt((flow.length + 10) * (width / height / 1.15)))));
    const columns = [];
    for (let c = 0; c < count; c += 1) {
      columns.push(flow.slice(Math.round((c * flow.length) / count), Math.round(((c + 1) * flow.length) / count)));
    }
    for (const column of columns) column.sort((a, b) => a.rank - b.rank || a.i - b.i);
    if (start.length) columns.unshift(start);
    const at = new Map();
    const settle = (column, c) =>
      column.forEach((tool, r) => at.set(tool.i, { c, y: (r + 0.5 + (c % 2 ? 0.12 : -0.12)) / column.length }));
    columns.forEach(settle);
    const partners = new Map(kept.map((tool) => [tool.i, []]));
    for (const link of links) {
      if (link.from !== link.to && !starts.has(link.from)) {
        partners.get(link.from).push([link.to, Math.sqrt(link.seen)]);
        partners.get(link.to).push([link.from, Math.sqrt(link.seen)]);
      }
    }
    const pull = (tool, c) => {
      let sum = 0.15 * at.get(tool.i).y;
      let weight = 0.15;
      for (const [other, w] of partners.get(tool.i)) {
        const far = Math.abs(at.get(other).c - c);
        if (far === 0) continue;
        sum += (w / far) * at.get(other).y;
        weight += w / far;
      }
      return sum / weight;
    };
    for (let sweep = 0; sweep < 10; sweep += 1) {
      const order = columns.map((_, c) => (sweep % 2 ? columns.length - 1 - c : c));
      for (const c of order) {
        const wanted = new Map(columns[c].map((tool) => [tool.i, pull(tool, c)]));
        columns[c].sort((a, b) => wanted.get(a.i) - wanted.get(b.i) || a.i - b.i);
        settle(columns[c], c);
      }
    }
    const side = columns.length > 1 ? Math.min(74, width / 6) : width / 2;
    const step = columns.length > 1 ? (width - 2 * side) / (columns.length - 1) : 0;
    const found = new Map();
    for (const [i, { c, y }] of at) found.set(i, [side + c * step, height - 34 - y * (height - 68)]);
    const rows = Math.max(...columns.map((column) => column.length));
    const room = Math.min(step || width, (height - 68) / rows);
    return { found, step: step || width, scale: Math.min(1, Math.max(0.4, room / ROOM_OF_TOOL)) };
  }

  function curve(from, to, fromRadius, toRadius, head, bend) {
    const points = [];
    if (from === to) {
      const r = 11;
      const [cx, cy] = [from[0], from[1] - fromRadius - r + 4];
      for (let i = 0; i <= CURVE_POINTS; i += 1) {
        const angle = Math.PI / 2 + (2 * Math.PI * i) / CURVE_POINTS;
        points.push([cx + r * Math.cos(angle), cy + r * Math.sin(angle)]);
      }
    } else {
      const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
      const middle = [(from[0] + to[0]) / 2 - dy * bend, (from[1] + to[1]) / 2 + dx * bend];
      for (let i = 0; i <= CURVE_POINTS; i += 1) {
        const t = i / CURVE_POINTS;
        const [a, b, c] = [(1 - t) ** 2, 2 * t * (1 - t), t ** 2];
        points.push([a * from[0] + b * middle[0] + c * to[0], a * from[1] + b * middle[1] + c * to[1]]);
      }
    }
    const off = (p, centre) => Math.hypot(p[0] - centre[0], p[1] - centre[1]);
    let first = 0;
    while (first < points.length - 2 && off(points[first], from) < fromRadius + 1) first += 1;
    let last = points.length - 1;
    while (last > first + 1 && off(points[last], to) < toRadius + 1) last -= 1;
    const tip = points[last];
    let back = last;
    while (back > first && off(points[back], tip) < head) back -= 1;
    const base = points[back];
    const length = off(base, tip) || 1;
    const [ux, uy] = [(tip[0] - base[0]) / length, (tip[1] - base[1]) / length];
    const foot = [tip[0] - ux * head, tip[1] - uy * head];
    const wing = head * 0.5;
    const triangle = [tip, [foot[0] - uy * wing, foot[1] + ux * wing], [foot[0] + uy * wing, foot[1] - ux * wing]];
    return { line: [...points.slice(first, back + 1), foot], triangle };
  }

  /* The gentlest bend with which an arrow passes by the tools that it does not join. */
  function bends(links, found, radius) {
    const chosen = new Map();
    const spots = [...found].map(([i, [x, y]]) => [i, x, y, radius(i) + 4]);
    for (const link of links) {
      const [from, to] = [found.get(link.from), found.get(link.to)];
      const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
      const others = spots.filter(([i]) => i !== link.from && i !== link.to);
      const covered = (bend) => {
        let sum = 0;
        for (let t = 0.08; t < 0.95; t += 0.07) {
          const side = 2 * t * (1 - t) * bend;
          const [x, y] = [from[0] + t * dx + side * dy, from[1] + t * dy - side * dx];
          for (const [, ox, oy, r] of others) if ((x - ox) ** 2 + (y - oy) ** 2 < r * r) sum += 1;
        }
        return sum;
      };
      const offered = link.reasons ? DASHED_BENDS : BENDS;
      let best = offered[0];
      let least = Infinity;
      for (const bend of link.from === link.to || links.length > MOST_BENT ? [] : offered) {
        const now = covered(bend);
        if (now < least) [best, least] = [bend, now];
        if (!least) break;
      }
      chosen.set(link, best);
    }
    return chosen;
  }

  return { shorten, inTwo, places, curve, bends };
})();
