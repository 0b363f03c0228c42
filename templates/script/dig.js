"use strict";
/* Means to dig: find, show only, open and close all, links, tables that sort and copy, figures that are saved.
   Names from data become text and values of attributes, never markup. */
(() => {
  const main = document.querySelector("main");
  const wide = matchMedia("(min-width:68rem)");
  const about = JSON.parse(document.getElementById("jr-about")?.textContent ?? "{}");
  const all = (selector, inside = main) => [...inside.querySelectorAll(selector)];
  const words = (element) => (element?.textContent ?? "").replace(/\s+/g, " ").trim();

  function filled(made, attributes, inside) {
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  }

  const make = (name, attributes, ...inside) => filled(document.createElement(name), attributes, inside);

  function button(label, act, attributes = {}) {
    const made = make("button", { type: "button", ...attributes }, label);
    made.addEventListener("click", act);
    return made;
  }

  /* What was done, for eyes and ears; behind an open box, nothing is seen or heard. */
  const said = make("p", { class: "said", role: "status" });
  let silence = 0;
  function say(text) {
    (box.open ? count : said).textContent = text;
    clearTimeout(silence);
    silence = setTimeout(() => { said.textContent = ""; }, 4000);
  }

  /* The clipboard of pages that are not served safely takes what a copy event is given. */
  async function copy(text, done) {
    const give = (event) => {
      event.clipboardData.setData("text/plain", text);
      event.preventDefault();
    };
    try {
      await navigator.clipboard.writeText(text);
      say(done);
    } catch {
      document.addEventListener("copy", give, { once: true });
      say(document.execCommand("copy") ? done : "The browser did not allow to copy.");
      document.removeEventListener("copy", give);
    }
  }

  /* ---- Going somewhere ---- */

  let found = null;
  function go(element) {
    for (let fold = element.closest("details"); fold !== null; fold = fold.parentElement.closest("details")) fold.open = true;
    if (element.closest(".left-out") !== null) showAll();
    found?.classList.remove("found");
    found = element;
    element.classList.add("found");
    element.scrollIntoView({ block: element.localName === "tr" ? "center" : "start" });
    if (element.tabIndex < 0) element.tabIndex = -1;
    element.focus({ preventScroll: true });
  }

  function goToAnchor() {
    const element = all("[id]").find(({ id }) => `#${encodeURIComponent(id)}` === location.hash || `#${id}` === location.hash);
    if (element !== undefined) go(element);
  }

  /* ---- Links to headings, findings, and figures ---- */

  function anchorOf(heading) {
    const whole = heading.closest(heading.localName === "h2" ? "section" : ".find > li") ?? heading;
    if (whole.id !== "") return whole.id;
    let id = `${heading.closest("[id]")?.id ?? ""}-${words(heading).toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-")}`;
    while (document.getElementById(id) !== null) id += "-2";
    return heading.id = id;
  }

  function link(anchor, label) {
    const made = make("a", { class: "here", href: `#${encodeURIComponent(anchor)}`, "aria-label": `Link to ${label}` }, "#");
    made.addEventListener("click", () => copy(made.href, "Link copied."));
    return made;
  }

  function links() {
    for (const heading of all("h2, h3, h4").filter((one) => !one.closest("nav, .evidence > h2, .verdict :not(h2)"))) {
      const label = words(heading);
      const anchor = anchorOf(heading);
      heading.setAttribute("aria-label", label);
      heading.append(link(anchor, label));
    }
    for (const figure of all("figure[id]")) {
      const caption = figure.querySelector("figcaption");
      const label = words(caption?.querySelector("b") ?? caption).replace(/\.$/, "");
      const signs = make("span", { class: "signs" }, link(figure.id, label));
      if (figure.querySelector(".draw, svg.strip") !== null) signs.append(...saving(figure, label));
      caption?.after(signs);
    }
  }

  /* ---- Tables ---- */

  const SIZES = { ns: 1e-9, "µs": 1e-6, "μs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400, k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
  const sizeOf = (unit) => SIZES[unit] ?? SIZES[/^([kMGT]i?)(?:B|Hz|bit)(?:\/s)?$/.exec(unit)?.[1]] ?? 1;

  /* A cell as a number, in the smallest unit of its kind; NaN for names, times of day, and what is missing. */
  function number(text) {
    const line = text.replace(/^[<>≤≥~≈±×\s]+/, "").replace(/^[−–](?=\s*[\d.])/, "-").replace(/(\d),(?=\d{3})/g, "$1");
    if (/^\d{4}-\d\d-|^\d+:\d\d/.test(line)) return NaN;
    const parts = [...line.matchAll(/(\d*\.?\d+(?:e[-+]?\d+)?)\s*([^\s\d.,;()–-]*)/gi)];
    if (parts.length === 0 || !/^[-+]?[\d.]/.test(line)) return NaN;
    const lasts = /^[-+]?(?:[\d.]+\s(?:d|h|min|s)\s?)+$/.test(line);
    const sum = (lasts ? parts : parts.slice(0, 1)).reduce((total, [, value, unit]) => total + value * sizeOf(unit), 0);
    return line.startsWith("-") ? -sum : sum;
  }

  /* Names as people count: gpu2 before gpu10. */
  const { compare } = new Intl.Collator("en", { numeric: true });

  function sortBy(table, column, direction) {
    const text = (row) => words(row.cells[column]);
    const known = all("tbody tr", table).filter((row) => row.cells.length > 1).map(text).filter((one) => /[\p{L}\d]/u.test(one));
    const counted = 2 * known.filter((one) => !isNaN(number(one))).length >= known.length;
    const order = (a, b) => {
      if (!counted) return direction * compare(text(a), text(b));
      const [one, other] = [a, b].map((row) => number(text(row)));
      return isNaN(one) || isNaN(other) ? isNaN(one) - isNaN(other) : direction * (one - other);
    };
    for (const body of table.tBodies) {
      /* Titles keep their place, and their rows below them. */
      const runs = [];
      for (const row of original(body)) {
        if (row.cells.length === 1) runs.push([row], []);
        else if (runs.length === 0) runs.push([row]);
        else runs.at(-1).push(row);
      }
      body.append(...runs.flatMap((run) => direction === 0 || run[0]?.cells.length === 1 ? run : run.sort(order)));
    }
  }

  const orders = new WeakMap();
  function original(body) {
    if (!orders.has(body)) orders.set(body, [...body.rows]);
    return orders.get(body);
  }

  function sortable(table) {
    const heads = all("thead th", table);
    if (all("tbody tr", table).filter((row) => row.cells.length > 1).length < 2) return;
    heads.forEach((head, column) => {
      if (head.querySelector(".scale") !== null || words(head) === "") return;
      const first = column === 0 || head.classList.contains("tl") ? "ascending" : "descending";
      const second = first === "ascending" ? "descending" : "ascending";
      const sort = button("", () => {
        const was = head.getAttribute("aria-sort");
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        const now = was === null ? first : was === first ? second : null;
        if (now !== null) head.setAttribute("aria-sort", now);
        sortBy(table, column, { ascending: 1, descending: -1 }[now] ?? 0);
        say(now === null ? "In the order of the report." : `Sorted by ${words(head)}, ${now}.`);
      });
      sort.append(...head.childNodes);
      head.append(sort);
    });
  }

  /* What a table of a spreadsheet would take for a formula is marked as text. */
  function cell(element) {
    const text = words(element);
    return /^[=@+-]/.test(text) && !/^[-+][\d.,]+\s?[\p{L}%/]*$/u.test(text) ? `'${text}` : text;
  }

  const tabbed = (table) => [...table.rows]
    .filter((row) => row.closest(".left-out") === null)
    .map((row) => [...row.cells].map(cell).join("\t")).join("\n");

  function tables() {
    for (const frame of all(".tw")) {
      const table = frame.querySelector("table");
      sortable(table);
      const name = frame.getAttribute("aria-label");
      frame.prepend(button("copy", () => copy(tabbed(table), "Table copied."), { class: "sign", "aria-label": `Copy the table: ${name}` }));
    }
  }

  /* ---- Figures as files ---- */

  const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "vector-effect", "shape-rendering", "color"];
  const EDGE = 16;

  const svg = (name, attributes, ...inside) => filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, inside);

  /* A copy that has its looks with it. */
  function styled(element, looked = element) {
    const made = element.cloneNode(false);
    const look = getComputedStyle(looked);
    made.removeAttribute("class");
    for (const name of LOOKS) made.style.setProperty(name, look.getPropertyValue(name));
    for (const one of element.childNodes) {
      if (one.nodeType !== Node.ELEMENT_NODE) made.append(one.cloneNode());
      else if (getComputedStyle(one).display !== "none" || one.closest("defs")) made.append(styled(one));
    }
    return made;
  }

  /* A figure as it stands: its static drawings, and words at their places. */
  function drawing(figure) {
    const area = figure.getBoundingClientRect();
    const made = svg("svg", { width: area.width + 2 * EDGE });
    const paper = svg("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.documentElement).backgroundColor });
    made.append(styled(document.querySelector(".jr-symbols defs")), paper);
    let bottom = 0;
    const place = (rect) => {
      bottom = Math.max(bottom, rect.bottom - area.y);
      return { x: rect.x - area.x + EDGE, y: rect.y - area.y + EDGE };
    };
    const write = (node) => {
      const range = document.createRange();
      for (const word of node.data.matchAll(/\S+/g)) {
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const rect = range.getBoundingClientRect();
        if (rect.width === 0) continue;
        const text = styled(svg("text", {}, word[0]), node.parentElement);
        const { x, y } = place(rect);
        text.setAttribute("x", x);
        text.setAttribute("y", y + 0.78 * rect.height);
        text.style.fill = text.style.color;
        made.append(text);
      }
    };
    const put = (node) => {
      if (node.nodeType === Node.TEXT_NODE) return write(node);
      if (node.nodeType !== Node.ELEMENT_NODE || node.matches("details, .live, .signs, .here, .hint, .sign, select, .vh")) return;
      if (node.localName !== "svg") return node.childNodes.forEach(put);
      const rect = node.getBoundingClientRect();
      if (rect.width === 0) return;
      const at = place(node.closest(".draw")?.getBoundingClientRect() ?? rect) && place(rect);
      const copied = styled(node);
      made.append(filled(copied, { ...at, width: rect.width, height: rect.height, overflow: "visible" }, []));
    };
    figure.childNodes.forEach(put);
    made.setAttribute("height", bottom + 2 * EDGE);
    return new XMLSerializer().serializeToString(made);
  }

  function save(name, content) {
    const address = URL.createObjectURL(content);
    make("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
    say(`Saved as ${name}.`);
  }

  async function savePicture(figure, name) {
    const live = jr.canvases?.(figure) ?? [];
    const picture = new Image();
    picture.src = `data:image/svg+xml,${encodeURIComponent(drawing(figure))}`;
    await picture.decode();
    const area = figure.getBoundingClientRect();
    const canvas = make("canvas", {});
    [canvas.width, canvas.height] = [2 * picture.width, 2 * picture.height];
    const context = canvas.getContext("2d");
    context.scale(2, 2);
    context.drawImage(picture, 0, 0);
    context.fillStyle = getComputedStyle(document.documentElement).backgroundColor;
    for (const [element, drawn] of live) {
      const { x, y, width, height } = element.getBoundingClientRect();
      const place = [x - area.x + EDGE, y - area.y + EDGE, width, height];
      context.fillRect(...place);
      context.drawImage(drawn, ...place);
    }
    save(name, await new Promise((done) => canvas.toBlob(done)));
  }

  function saving(figure, label) {
    const name = figure.id.replace(/[^\w-]+/g, "-");
    const kind = (word, act) => button(word, () => act(`${name}.${word.toLowerCase()}`), { class: "sign", "aria-label": `Save ${label} as ${word}` });
    return [
      kind("SVG", (file) => save(file, new Blob([drawing(figure)], { type: "image/svg+xml" }))),
      kind("PNG", (file) => savePicture(figure, file)),
    ];
  }

  /* ---- Find ---- */

  let index = null;
  function entries() {
    const listed = new Map();
    const add = (kind, label, element) => {
      const place = kind === "section" ? "" : element.closest("main > section")?.querySelector("h2").getAttribute("aria-label") ?? "";
      const key = `${kind} ${label} ${place}`;
      if (label !== "" && !listed.has(key)) listed.set(key, { kind, label, element, place, sought: `${label} ${kind}`.toLowerCase() });
    };
    const titles = all("h2, h3, h4").filter((one) => !one.closest("nav, article, .fold, .evidence > h2"));
    for (const one of titles) {
      const kind = one.closest(".find") ? "finding" : one.localName === "h2" ? "section" : "part";
      add(kind, one.getAttribute("aria-label") ?? words(one), one.closest(".find > li") ?? one);
    }
    for (const one of all("[id^='r-']")) add("rule", one.getAttribute("aria-label") ?? words(one), one);
    for (const one of all("figcaption")) add("figure", words(one), one.parentElement);
    for (const one of all("caption:not(.vh)")) add("table", words(one), one.closest(".tw"));
    for (const table of all("table")) {
      const head = words(table.querySelector("thead th")).toLowerCase() || "row";
      for (const row of table.querySelectorAll("tbody tr")) {
        const name = words(row.cells[0]);
        add(head, /^[\d.]+$/.test(name) ? `${head} ${name}` : name, row);
      }
    }
    /* Names at the side of a drawing: operators, kernels, ranks. */
    for (const one of all(":is(.names, .ranked) g > text")) if (/\p{L}/u.test(words(one))) add("in a figure", words(one), one.closest("figure"));
    return [...listed.values()];
  }

  const MOST = 40;
  const field = make("input", { type: "search", role: "combobox", "aria-expanded": "false", "aria-controls": "jr-hits", "aria-label": "Find", placeholder: "Find a section, finding, rule, rank, kernel, operator", autocomplete: "off" });
  const hits = make("ul", { id: "jr-hits", role: "listbox", "aria-label": "Found", hidden: "" });
  const count = make("p", { class: "m s", role: "status" });
  const box = make("dialog", { class: "jr dig-box", "aria-label": "Find and show only" });
  let shown = [];
  let at = 0;

  function choose(i) {
    at = (i + shown.length) % Math.max(1, shown.length);
    [...hits.children].forEach((one, j) => one.setAttribute("aria-selected", j === at));
    hits.children[at]?.scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", hits.children[at]?.id ?? "");
  }

  function find() {
    const query = field.value.trim().toLowerCase();
    index ??= entries();
    const begins = ({ sought }) => sought.startsWith(query);
    const whole = query === "" ? [] : index.filter(({ sought }) => query.split(/\s+/).every((part) => sought.includes(part)));
    shown = whole.sort((a, b) => begins(b) - begins(a)).slice(0, MOST);
    hits.replaceChildren(...shown.map(({ kind, label, place }, i) => {
      const option = make("li", { role: "option", id: `jr-hit-${i}` }, make("span", { class: "m" }, kind), make("span", {}, label), make("span", { class: "m" }, place));
      option.addEventListener("click", () => goTo(i));
      return option;
    }));
    hits.hidden = shown.length === 0;
    field.setAttribute("aria-expanded", shown.length > 0);
    count.textContent = query === "" ? "" : whole.length > MOST ? `The first ${MOST} of ${whole.length}` : `${whole.length} found`;
    choose(0);
  }

  function goTo(i) {
    if (shown[i] === undefined) return;
    box.close();
    go(shown[i].element);
  }

  field.addEventListener("input", find);
  field.addEventListener("keydown", (event) => {
    const { key } = event;
    if (key === "ArrowDown" || key === "ArrowUp") choose(at + (key === "ArrowDown" ? 1 : -1));
    else if (key === "Enter") goTo(at);
    else if (key === "Escape") box.close();
    else return;
    event.preventDefault();
  });

  function openFinder() {
    box.showModal();
    field.select();
  }

  /* ---- Show only ---- */

  const PHASES = about.phases ?? [];
  const LAYERS = ":is(.blocks, .pairs, .multiples)";

  /* What a name is about: kinds and names of a rank and a node. */
  function partsOf(name) {
    const rank = /(?:^|\s)rank (\d+)\b/i.exec(name)?.[1];
    const node = [name, name.split(",")[0], name.split(/,? /)[0]].find((one) => nodes.has(one));
    return [["Rank", rank], ["Node", node]].filter(([, one]) => one !== undefined);
  }

  /* A row of a drawing is hidden by a cover: static and live ones share the place. */
  function covers(drawn) {
    const frame = make("div", { class: "plot rows" });
    drawn.append(frame);
    return JSON.parse(drawn.dataset.rows).map(([name, top, height]) => {
      const cover = make("i", { class: "row", style: `top:${top}%;height:${height}%` });
      frame.append(cover);
      return [cover, name];
    });
  }

  /* What each row, panel, and line is about: [element, kind, name]. Those of several ranks or nodes are about none. */
  const nodes = new Set();
  function parts() {
    const listed = [];
    for (const table of all("table")) {
      const heads = all("thead th", table).map(words);
      for (const row of table.querySelectorAll("tbody tr")) {
        if (row.cells.length === heads.length) heads.forEach((head, i) => {
          if (i > 0 && !["Node", "Rank", "Phase"].includes(head)) return;
          const name = words(row.cells[i]);
          const rank = (head === "Rank" ? /^(?:rank )?(\d+)$/ : /^rank (\d+)$/).exec(name);
          if (rank !== null) listed.push([row, "Rank", rank[1]]);
          else if (head === "Node" || head === "Phase") listed.push([row, head, name]);
          if (head === "Node") nodes.add(name);
        });
      }
    }
    const titled = all(`${LAYERS} h3, ${LAYERS} .panel-title, .group > th, [data-series]`).map((title) =>
      [title.closest(`tbody, [data-series], ${LAYERS} > div`), title.getAttribute("aria-label") ?? words(title)]);
    for (const [element, name] of [...titled, ...all("[data-rows]").flatMap(covers)]) {
      listed.push(...partsOf(name).map((part) => [element, ...part]));
    }
    return listed;
  }

  const listed = [];
  const choices = [];
  const only = button("Show only", () => {
    box.showModal();
    choices[0].input.focus();
  });

  function fieldset(kind, title) {
    const names = new Set(kind === "Phase" ? PHASES.map(([label]) => label) : listed.filter(([, one]) => one === kind).map(([, , name]) => name));
    if (names.size < 2) return "";
    return make("fieldset", {}, make("legend", {}, title), ...[...names].sort(kind === "Phase" ? () => 0 : compare).map((name) => {
      const input = make("input", { type: "checkbox" });
      choices.push({ input, kind, name });
      input.addEventListener("change", () => {
        /* The time axes show one phase. */
        if (kind === "Phase") for (const one of choices) if (one.kind === kind && one.input !== input) one.input.checked = false;
        filter();
      });
      return make("label", {}, input, ` ${name}`);
    }));
  }

  let phaseShown;
  function filter() {
    const chosen = choices.filter(({ input }) => input.checked);
    const outside = (kind, name) => chosen.some((one) => one.kind === kind) && !chosen.some((one) => one.kind === kind && one.name === name);
    const leftOut = new Set(listed.filter(([, ...part]) => outside(...part)).map(([element]) => element));
    jr.lines?.((name) => {
      const found = partsOf(name);
      return found.length === 0 ? null : !found.some((part) => outside(...part));
    });
    for (const [element] of listed) {
      const out = leftOut.has(element);
      /* The switch of a line. */
      const line = element.matches("[data-series]") ? element.querySelector("button") : null;
      if (out !== element.classList.contains("left-out") && out === (line?.getAttribute("aria-pressed") === "true")) line?.click();
      element.classList.toggle("left-out", out);
    }
    const phase = chosen.find(({ kind }) => kind === "Phase")?.name;
    if (phase !== phaseShown) jr.show?.(...PHASES.find(([label]) => label === phase)?.slice(1) ?? []);
    phaseShown = phase;
    const names = chosen.map(({ kind, name }) => kind === "Rank" ? `rank ${name}` : name);
    if (names.length > 2) names.splice(2, Infinity, "…");
    only.textContent = names.length === 0 ? "Show only" : `Only ${names.join(", ")}`;
    say(names.length === 0 ? "Everything is shown." : `Hidden: ${leftOut.size} rows, panels, and lines.`);
  }

  function showAll() {
    for (const { input } of choices) input.checked = false;
    filter();
  }

  /* ---- The list of means ---- */

  function folds(open) {
    for (const fold of all("details")) fold.open = open;
    say(open ? "All folds are open." : "All folds are closed.");
  }

  function means() {
    listed.push(...parts());
    const groups = [fieldset("Node", "Show only nodes"), fieldset("Rank", "Show only ranks"), fieldset("Phase", "Show only a phase")];
    const open = button("Find ", openFinder, { class: "find-key", "aria-keyshortcuts": "/" });
    open.append(make("kbd", { "aria-hidden": "true" }, "/"));
    const list = make("div", { class: "means", role: "group", "aria-label": "Means to dig" });
    list.append(button("Open all", () => folds(true)), button("Close all", () => folds(false)));
    if (about.summary !== undefined) list.append(button("Copy for a ticket", () => copy(about.summary, "The summary is copied as Markdown.")));
    const axes = [["Times since the start", "start"], ["Steps on time axes", "steps"]].filter(([, kind]) => jr[kind] !== undefined).map(([name, kind]) => {
      const axis = button(name, () => {
        const on = axis.getAttribute("aria-pressed") === "false";
        for (const one of axes) one.setAttribute("aria-pressed", one === axis && on);
        jr.count(on ? kind : "");
      }, { "data-times": "", "aria-pressed": "false", hidden: "" });
      return axis;
    });
    list.append(...axes);
    box.append(field, button("Close", () => box.close()), hits, count, ...groups);
    if (choices.length > 0) box.append(button("Show all", showAll));
    document.body.append(box, said);
    const nav = main.querySelector("nav > h2");
    const place = () => {
      if (wide.matches && nav !== null) nav.before(open, ...choices.length > 0 ? [only] : [], list);
      else {
        only.remove();
        document.body.append(open);
        box.append(list);
      }
    };
    wide.addEventListener("change", place);
    place();
  }

  window.jr = { say, start: about.phases?.[0][1], steps: about.steps };
  links();
  tables();
  means();
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select") || box.open) return;
    event.preventDefault();
    openFinder();
  });
  addEventListener("hashchange", goToAnchor);
  if (location.hash.length > 1) goToAnchor();
})();
