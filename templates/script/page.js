"use strict";
/* Marks in the contents the section that is being read, and keeps the tab key out of tables that do not scroll. */
(() => {
  const contents = document.querySelector("nav");
  if (contents === null) return;
  const entries = [...contents.querySelectorAll("a[href^='#']")]
    .map((link) => ({ link, section: document.getElementById(link.hash.slice(1)) }))
    .filter(({ section }) => section !== null);
  let marked = null;
  let waiting = false;

  function mark() {
    waiting = false;
    const root = document.documentElement;
    const atEnd = scrollY + innerHeight >= root.scrollHeight - 2;
    const line = atEnd ? innerHeight : innerHeight / 3;
    const top = ({ section }) => section.getBoundingClientRect().top;
    const passed = entries.filter((one) => top(one) <= line);
    /* Of short sections below one another, the one that the reader went to. */
    const target = passed.find((one) => one.section.matches(":target") && top(one) >= 0);
    const { link } = target ?? passed.at(-1) ?? entries[0];
    if (link === marked) return;
    marked?.removeAttribute("aria-current");
    link.setAttribute("aria-current", "location");
    marked = link;
    /* Only the list itself is scrolled, never the page. */
    const inside = link.getBoundingClientRect();
    const frame = contents.getBoundingClientRect();
    if (inside.top < frame.top) contents.scrollTop -= frame.top - inside.top;
    if (inside.bottom > frame.bottom) contents.scrollTop += inside.bottom - frame.bottom;
  }

  function soon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(mark);
  }

  if (entries.length === 0) return;
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon, { passive: true });
  addEventListener("hashchange", soon);
  mark();
})();

(() => {
  /* Without scripts each table is a stop of the tab key, for those that scroll; here only those that do. */
  const tables = [...document.querySelectorAll(".tw")];
  const fit = () => tables.forEach((table) => { table.tabIndex = table.scrollWidth > table.clientWidth ? 0 : -1; });
  const watcher = new ResizeObserver(fit);
  tables.forEach((table) => [table, ...table.children].forEach((element) => watcher.observe(element)));
})();
