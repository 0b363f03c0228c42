"use strict";
/* Icicles: a click shows one part as wide as the figure, with what it called; a search dims all other parts. */
for (const figure of new Set([...document.querySelectorAll(".icicle")].map((one) => one.closest("figure")))) {
  const drawings = [...figure.querySelectorAll(".icicle")].map((icicle) =>
    [...icicle.querySelectorAll("svg")].map((part) => {
      const [from, width] = ["x", "width"].map((name) => parseFloat(part.getAttribute(name)));
      return { part, from, width, name: part.textContent.toLowerCase() };
    }));

  function zoom(parts, to) {
    const place = (at) => Math.min(100, Math.max(0, (100 * (at - to.from)) / to.width));
    for (const { part, from, width } of parts) {
      part.setAttribute("x", `${place(from)}%`);
      part.setAttribute("width", `${place(from + width) - place(from)}%`);
    }
  }

  const whole = { from: 0, width: 100 };
  for (const parts of drawings) {
    for (const one of parts) {
      one.part.style.cursor = "zoom-in";
      one.part.addEventListener("click", () => zoom(parts, one));
    }
  }
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Find a function";
  field.setAttribute("aria-label", "Find a function in the stacks; Enter shows it");
  const found = (one) => one.name.includes(field.value.toLowerCase());
  field.addEventListener("input", () => {
    for (const one of drawings.flat()) one.part.style.opacity = found(one) ? "" : 0.3;
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") drawings.forEach((parts) => zoom(parts, (field.value && parts.find(found)) || whole));
  });
  const all = document.createElement("button");
  all.type = "button";
  all.textContent = "show all";
  all.addEventListener("click", () => drawings.forEach((parts) => zoom(parts, whole)));
  const hint = document.createElement("p");
  hint.className = "hint";
  hint.append("Click a part to zoom, or ", all, " ", field);
  figure.querySelector("figcaption").after(hint);
}
