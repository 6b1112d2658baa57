/* Puts the parts together, and colours the drawings as the style sheet says. */
(async () => {
  Tables.start();
  const data = JSON.parse(document.getElementById("data").textContent);

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const blend = (a, b, t) => `#${parts(a).map((v, i) => Math.round(v + (parts(b)[i] - v) * t).toString(16).padStart(2, "0")).join("")}`;
    const [poor, mid, good] = ["poor", "mid", "good"].map(read);
    /* Half or less is as poor as it gets: below that nobody tells the difference. */
    const success = (share) => {
      const t = Math.min(1, Math.max(0, 2 * share - 1));
      return t < 0.5 ? blend(poor, mid, 2 * t) : blend(mid, good, 2 * t - 1);
    };
    const names = ["text", "quiet", "line", "surface", "neutral", "start", "flow", "good", "poor"];
    return { ...Object.fromEntries(names.map((name) => [name, read(name)])), success };
  }

  const figures = {};
  const fonts = getComputedStyle(document.documentElement).fontFamily;

  function paint() {
    const c = colours();
    const glyphs = { skipped: c.good, failed: c.poor, asked: c.neutral };
    for (const [name, figure] of Object.entries(figures)) {
      for (const axis of [...figure.below, ...figure.left]) {
        axis.setv({
          axis_line_color: c.line, major_tick_line_color: c.line, minor_tick_line_color: null,
          major_label_text_color: c.quiet, major_label_text_font: fonts, major_label_text_font_size: "12px",
        });
      }
      for (const grid of figure.center) if (grid.grid_line_color != null) grid.grid_line_color = c.line;
      for (const renderer of figure.renderers) {
        const glyph = renderer.glyph;
        if (name === "graph") {
          if (glyph.type === "Text") glyph.setv({ text_color: { value: c.text }, background_fill_color: { value: c.surface }, text_font: { value: fonts } });
          continue;
        }
        const colour = glyphs[renderer.name];
        if (!colour) continue;
        if (glyph.type === "Line") glyph.line_color = { value: colour };
        else glyph.fill_color = { value: colour };
      }
    }
  }

  for (const [name, item] of Object.entries(data.items)) {
    const target = document.getElementById(name);
    if (!target) continue;
    const views = await Bokeh.embed.embed_item(item, target);
    figures[name] = views.roots[0].model;
  }
  paint();
  const explorer = figures.graph ? Explorer.start(figures.graph, data, colours) : null;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    paint();
    explorer?.draw();
  });
  document.documentElement.dataset.ready = "yes";
})();
