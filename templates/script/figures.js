"use strict";
/* Draws the figures that stand in the page as inert JSON, in the colors of the reader's scheme.
   Without this script the static drawings stay, and nothing else is missing. */
(() => {
  const TOKENS = { TOKENS };
  const dark = matchMedia("(prefers-color-scheme:dark)");
  const coarse = matchMedia("(pointer:coarse)");

  /* Color in use → color wanted. */
  const current = {};
  function colors() {
    const style = getComputedStyle(document.documentElement);
    const swap = new Map();
    for (const [light, token] of Object.entries(TOKENS)) {
      const wanted = style.getPropertyValue(token).trim() || light;
      swap.set(current[light] ?? light, wanted);
      current[light] = wanted;
    }
    return swap;
  }

  const isColor = (key) => key === "color" || key.endsWith("_color");

  /* A value of a document as it is read, in the colors in use. */
  const paint = (color) => current[color] ?? color;
  function painted(key, value) {
    if (key === "palette") return value.map(paint);
    if (isColor(key) && typeof value?.v === "string") value.v = paint(value.v);
    return isColor(key) && typeof value === "string" ? paint(value) : value;
  }

  function repaint(swap) {
    for (const model of Bokeh.documents.flatMap(({ all_models: models }) => [...models])) {
      for (const { attr } of model) {
        if (attr !== "palette" && !isColor(attr)) continue;
        const value = model[attr];
        if (attr === "palette") model.setv({ palette: value.map((one) => swap.get(one) ?? one) });
        else if (swap.has(value)) model.setv({ [attr]: swap.get(value) });
        else if (swap.has(value?.value)) model.setv({ [attr]: { ...value, value: swap.get(value.value) } });
      }
    }
  }

  const plots = (shown) => shown.roots().filter((root) => root.toolbar !== undefined);

  function use(moved, kind) {
    for (const plot of moved) {
      for (const tool of plot.toolbar.tools) {
        if (tool.type === "BoxZoomTool" || tool.type === "PanTool") tool.active = tool.type === kind;
      }
    }
  }

  function controls(section, shown, roots) {
    for (const hint of section.querySelectorAll(".hint")) {
      const figure = hint.closest("figure");
      const inside = plots(shown).filter((plot) => figure?.querySelector(`#${CSS.escape(roots[plot.id])}`));
      /* A section may hold several documents, each with figures of its own. */
      if (figure !== null && inside.length === 0) continue;
      /* Plots of another figure may share the range. */
      const moved = plots(shown).filter((plot) => inside.some((one) => one.x_range === plot.x_range));
      hint.hidden = false;
      const modes = [...hint.querySelectorAll("button[data-use]")];
      const choose = (kind) => {
        use(moved, kind);
        modes.forEach((mode) => mode.setAttribute("aria-pressed", mode.dataset.use === kind));
      };
      modes.forEach((mode) => {
        mode.addEventListener("click", () =>
          choose(mode.getAttribute("aria-pressed") === "true" ? "" : mode.dataset.use));
      });
      hint.querySelector("button[data-reset]")?.addEventListener("click", () => {
        for (const plot of moved) plot.x_range.reset();
      });
      if (modes.length > 0) choose(coarse.matches ? "" : "BoxZoomTool");
    }
  }

  /* The entries of a key become switches of what they name. */
  function switches(section, shown, roots) {
    for (const figure of section.querySelectorAll("figure")) {
      for (const entry of figure.querySelectorAll(".key [data-series]")) {
        /* The key in a panel is that of its plot alone. */
        const scope = entry.closest(".panel") ?? figure;
        const drawn = shown.roots().filter((root) => scope.querySelector(`#${CSS.escape(roots[root.id])}`));
        if (drawn.length === 0) continue;
        const button = document.createElement("button");
        button.type = "button";
        button.setAttribute("aria-pressed", "true");
        button.append(...entry.childNodes);
        button.addEventListener("click", () => {
          const on = button.getAttribute("aria-pressed") === "false";
          button.setAttribute("aria-pressed", on);
          for (const plot of drawn) {
            for (const one of plot.renderers ?? []) if (one.name === entry.dataset.series) one.visible = on;
          }
        });
        entry.replaceChildren(button);
      }
    }
  }

  const MISSING = 255, FULL = 101;

  /* The bytes of a heat map are percent, 101 more where a core is full, and 255 where nothing was measured. */
  const percent = (value, missing) => value === MISSING ? missing : value % FULL;

  function wordMissing(shown) {
    for (const tool of plots(shown).flatMap((plot) => plot.toolbar.tools)) {
      if (tool.name !== "cells") continue;
      const words = new (Bokeh.Models.get("CustomJSHover"))();
      words.format = (value) => percent(value, "not measured");
      tool.formatters = { $x: "datetime", "@image": words, "@low": words, "@high": words };
    }
  }

  /* Each line of single devices gets a list of all rows; their values stand in the sources of the heat map. */
  function lists(section, shown) {
    const plot = plots(shown).find((one) => one.name === "single-devices");
    if (plot === undefined) return;
    const rows = plot.tags.flatMap((source) => {
      const [names, groups, images] = ["name", "group", "image"].map((column) => source.get_column(column));
      /* A drawn row is an image of its own; those that are not drawn share one. */
      return images.flatMap((image, i) => [names[i]].flat().map((name, j) =>
        ({ name, group: groups[i], values: image.slice(j * image.shape[1], (j + 1) * image.shape[1]) })));
    });
    const groups = new Map();
    rows.forEach((row, i) => groups.set(row.group, [...groups.get(row.group) ?? [], new Option(row.name, i)]));
    const frame = section.querySelector("#fig-devices-lines .draw");
    const chosen = [];
    section.querySelectorAll("[data-line]").forEach((entry, i) => {
      const line = plot.renderers[i];
      const list = document.createElement("select");
      list.setAttribute("aria-label", entry.dataset.line);
      list.append(new Option("none", ""));
      for (const [label, options] of groups) {
        const group = document.createElement("optgroup");
        group.label = label;
        group.append(...options.map((option) => option.cloneNode(true)));
        list.append(group);
      }
      list.value = line.tags[0] ?? "";
      chosen[i] = rows[list.value]?.name;
      list.addEventListener("change", () => {
        const row = rows[list.value];
        const source = line.data_source;
        const columns = Object.fromEntries(source.columns().map((name) => [name, source.get_column(name)]));
        if (row !== undefined) {
          columns[line.glyph.y.field] = Float64Array.from(row.values, (value) => percent(value, NaN));
        }
        line.name = row?.name ?? "";
        line.visible = row !== undefined;
        source.data = columns;
        chosen[i] = row?.name;
        const names = chosen.filter((name) => name !== undefined).join(", ");
        frame.setAttribute("aria-label", `Single devices over time: ${names || "none"}.`);
      });
      entry.append(list);
      entry.classList.add("has-list");
    });
  }

  /* ---- One time axis: all figures over time are zoomed, moved, and pointed at together ---- */

  /* Of every plot that is drawn: its view, and its place. */
  const drawn = [];
  const moves = ({ model }) => model.toolbar?.tools.some((tool) => tool.type === "PanTool");
  /* A close-up has the time as its axis too, but a stretch of its own. */
  const isTime = ({ model }) => ["time", "close-up"].includes(model.x_range?.name);
  const times = () => drawn.filter(isTime);
  const linked = () => [...new Set(times().map(({ model }) => model.x_range).filter(({ name }) => name === "time"))];

  function onFrame(act) {
    let given = null;
    return (...arguments_) => {
      if (given === null) requestAnimationFrame(() => { const last = given; given = null; act(...last); });
      given = arguments_;
    };
  }

  /* The ends of each range that can be moved, as it was drawn. */
  const wholes = new Map();
  const isWhole = (range) => range.start === wholes.get(range)[0] && range.end === wholes.get(range)[1];

  function together() {
    for (const { model } of drawn.filter(moves)) wholes.set(model.x_range, model.x_range.bounds);
    /* A figure of a part of the job shows the time of the others too, or it could not follow. */
    const ends = linked().flatMap((range) => range.bounds);
    for (const range of linked()) range.bounds = [Math.min(...ends), Math.max(...ends)];
    let following = false;
    const follow = onFrame((range) => {
      following = true;
      for (const other of linked()) {
        if (other === range) continue;
        if (isWhole(range)) other.reset();
        else other.setv({ start: range.start, end: range.end });
      }
      following = false;
    });
    for (const range of linked()) range.change.connect(() => { if (!following) follow(range); });
  }

  function crosshair() {
    const shown = times().map(({ view, model, element }) => {
      const line = document.createElement("i");
      line.className = "cross";
      line.hidden = true;
      element.after(line);
      return { view, range: model.x_range, element, line };
    });
    const point = onFrame((time) => {
      for (const { view, range, line } of shown) {
        const at = (time - range.start) / (range.end - range.start);
        line.hidden = !(at >= 0 && at <= 1);
        line.style.left = `${view.frame.bbox.left + at * view.frame.bbox.width}px`;
      }
    });
    for (const { view, range, element } of shown) {
      element.addEventListener("pointermove", ({ clientX }) => {
        const { left, width } = view.frame.bbox;
        point(range.start + (clientX - element.getBoundingClientRect().left - left) / width * (range.end - range.start));
      });
      element.addEventListener("pointerleave", () => point(NaN));
    }
  }

  /* Seconds as 1:05:30. */
  function clock(ms) {
    const far = Math.abs(Math.round(ms));
    const [rest, parts] = new Date(far).toISOString().slice(14, 23).split(".");
    return `${ms < 0 ? "−" : "+"}${Math.floor(far / 3600000)}:${rest}` + (parts === "000" ? "" : `.${parts}`);
  }

  /* Time axes tell the time of day, count from the start of the job, or from its first step. */
  let axis = "";

  /* Stretches in which steps lie evenly: first step and its start, last step and its start. */
  const stretches = () => jr.steps.slice(1).map((last, i) => [...jr.steps[i], ...last]);

  function stepAt(ms) {
    const [low, from, high, to] = stretches().findLast((one, i) => i === 0 || one[1] <= ms);
    /* A lower number: the job began again. */
    const step = low + Math.max(0, high - low) * Math.min(1, Math.max(0, (ms - from) / (to - from)));
    return `${ms < from ? "before " : ms > to + 1 ? "after " : ""}step ${Math.floor(step + 0.01).toLocaleString("en")}`;
  }

  /* When about six steps of round numbers began; where none did, the middle. */
  function stepTicks(start, end) {
    const shown = stretches().map(([low, from, high, to]) => {
      const [rise, time] = [high - low, to - from];
      return [low + rise * Math.max(0, (start - from) / time), low + rise * Math.min(1, (end - from) / time),
        (step) => from + time * (step - low) / rise];
    }).filter(([first, last]) => last > first);
    const wanted = shown.reduce((sum, [first, last]) => sum + last - first, 0) / 6;
    const power = 10 ** Math.floor(Math.log10(wanted));
    const every = Math.max(1, power * [1, 2, 5, 10].find((one) => one * power >= wanted));
    const ticks = [];
    for (const [first, last, when] of shown) {
      for (let step = Math.ceil(first / every) * every; step <= last; step += every) ticks.push(when(step));
    }
    return ticks.length > 0 ? ticks : [(start + end) / 2];
  }

  function told(ms) {
    if (axis === "steps") return stepAt(ms);
    if (axis === "start") return clock(ms - jr.start);
    return ms > 1e11 ? `${new Date(ms).toISOString().slice(11, 19)} UTC` : clock(ms);
  }

  function count(kind) {
    axis = kind;
    for (const { model } of times()) {
      const { ticker, formatter } = model.below[0];
      if (formatter.type !== "DatetimeTickFormatter") continue;
      delete ticker.get_ticks;
      delete formatter.doFormat;
      const whole = ticker.get_ticks, { start } = jr;
      if (kind !== "") formatter.doFormat = (ticks) => ticks.map(told);
      if (kind === "start") {
        ticker.get_ticks = (low, high, ...rest) => {
          const { major } = whole.call(ticker, low - start, high - start, ...rest);
          return { major: major.map((tick) => tick + start), minor: [] };
        };
      } else if (kind === "steps") {
        ticker.get_ticks = (low, high) => ({ major: stepTicks(low, high), minor: [] });
      }
      model.below[0].change.emit();
    }
  }

  /* The part of the time to show; without, the whole. */
  function show(from, to) {
    for (const range of linked()) {
      if (from === undefined) range.reset();
      else range.setv({ start: from, end: to });
    }
  }

  /* Lines that no key has are shown or hidden by their names; of other names nothing is known. */
  function lines(isShown) {
    for (const line of drawn.flatMap(({ model }) => model.renderers ?? [])) line.visible = isShown(line.name ?? "") ?? line.visible;
  }

  /* ---- Figures by keys: how far to move, and how much wider to become ---- */

  const KEYS = { "+": [0, 0.5], "=": [0, 0.5], "-": [0, 2], "−": [0, 2], ArrowLeft: [-0.25, 1], ArrowRight: [0.25, 1], 0: null };

  function step(range, key) {
    if (KEYS[key] === null) return range.reset();
    const [far, wider] = KEYS[key];
    const [first, last] = wholes.get(range);
    const width = range.end - range.start;
    const wanted = Math.max(range.min_interval ?? 0, width * wider);
    if (wanted >= last - first) return range.reset();
    const left = range.start + far * width + (width - wanted) / 2;
    const begin = Math.min(Math.max(first, left), last - wanted);
    range.setv({ start: begin, end: begin + wanted });
  }

  function keys() {
    for (const figure of document.querySelectorAll("figure")) {
      const inside = drawn.filter((one) => moves(one) && figure.contains(one.element));
      if (inside.length === 0) continue;
      const frame = inside[0].element.parentElement;
      frame.tabIndex = 0;
      frame.setAttribute("aria-keyshortcuts", "+ - ArrowLeft ArrowRight 0");
      figure.addEventListener("keydown", (event) => {
        if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
        if (event.target.closest("select, input, .tw") !== null) return;
        event.preventDefault();
        for (const range of new Set(inside.map(({ model }) => model.x_range))) step(range, event.key);
        const { start: from, end: to } = inside[0].model.x_range;
        if (isTime(inside[0])) jr.say?.(`${told(from)} to ${told(to)}`);
      });
    }
  }

  const canvases = (figure) => drawn
    .filter(({ element }) => figure.contains(element) && element.getBoundingClientRect().width > 0)
    .map(({ view, element }) => [element, view.export("png", true).canvas]);

  /* Bokeh makes every canvas a stop of the tab key that nothing can be done at. */
  function unstop(element) {
    for (const inner of element.querySelectorAll("*")) {
      if (inner.tabIndex >= 0) inner.tabIndex = -1;
      if (inner.shadowRoot !== null) unstop(inner.shadowRoot);
    }
  }

  /* What is written short becomes what Bokeh reads; what all models of a kind share stands once, in common. */
  function complete(value, common) {
    if (Array.isArray(value)) return value.map((item) => complete(item, common));
    if (value === null || typeof value !== "object") return value;
    const whole = (item) => complete(item, common);
    if ("$" in value) {
      const attributes = { ...common[value.$], ...value.a };
      return { type: "object", name: value.$, id: value.id, attributes: entries(attributes, whole) };
    }
    if ("f" in value) return { type: "field", field: value.f };
    if ("v" in value) return { type: "value", value: whole(value.v) };
    if ("m" in value) return { type: "map", entries: whole(value.m) };
    if ("b" in value) {
      return { type: "ndarray", array: { type: "bytes", data: value.b }, shape: value.s, dtype: value.d, order: "little" };
    }
    return entries(value, whole);
  }

  const entries = (value, change) =>
    Object.fromEntries(Object.entries(value).map(([key, item]) => [key, change(item)]));

  async function draw(script) {
    const { doc: short, roots, common } = JSON.parse(script.textContent, painted);
    const doc = complete(short, common);
    const elements = Object.values(roots).map((id) => document.getElementById(id));
    if (elements.some((element) => element === null)) return;
    elements.forEach((element) => element.replaceChildren());
    elements.forEach((element) => element.parentElement.classList.add("is-live"));
    const [views] = await Bokeh.embed.embed_items(
      { [script.id]: doc },
      [{ docid: script.id, roots, root_ids: Object.keys(roots) }],
    );
    elements.forEach(unstop);
    const shown = [...views][0].model.document;
    for (const view of views) drawn.push({ view, model: view.model, element: document.getElementById(roots[view.model.id]) });
    controls(script.closest("section"), shown, roots);
    switches(script.closest("section"), shown, roots);
    wordMissing(shown);
    lists(script.closest("section"), shown);
  }

  async function start() {
    colors();
    for (const script of document.querySelectorAll("script.jr-figures")) await draw(script);
    dark.addEventListener("change", () => repaint(colors()));
    together();
    crosshair();
    keys();
    window.jr = Object.assign(window.jr ?? {}, { canvases, lines, show, count });
    const waiting = times().length > 0 ? "[data-live], [data-times]" : "[data-live]";
    for (const one of document.querySelectorAll(waiting)) one.hidden = false;
    document.documentElement.dataset.figures = "live";
  }

  if (typeof Bokeh !== "undefined") {
    start().catch((error) => {
      document.querySelectorAll(".is-live").forEach((frame) => frame.classList.remove("is-live"));
      console.error("The figures stay static:", error);
    });
  }
})();
