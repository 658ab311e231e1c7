// Interactive features: colour theme, sortable tables, enlarged figures, copying the command.
// The script makes no requests. Without it the page still shows all content.
"use strict";
(() => {
  const KEY = "regtta-report-theme";
  const root = document.documentElement;

  // Local storage may be unavailable (private windows, file URLs): the choice then lasts until the page is closed.
  const remembered = () => {
    try { return localStorage.getItem(KEY); } catch { return null; }
  };
  const remember = (theme) => {
    try { localStorage.setItem(KEY, theme); } catch { /* not stored */ }
  };

  // Applied before the first paint, so that the page does not flash in the other theme.
  const chosen = remembered();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  const say = (text) => { document.getElementById("status").textContent = text; };

  function setUpTheme() {
    const button = document.getElementById("theme");
    const system = matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
    // The label names the theme that a click switches to.
    const label = () => { button.textContent = isDark() ? "Light colours" : "Dark colours"; };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remember(root.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    label();
    button.hidden = false;
  }

  // Numbers sort before texts, and "9 seeds" before "10 seeds". A cell without a key is empty.
  const collator = new Intl.Collator("en", { numeric: true });
  const isEmpty = ({ number, text }) => number === undefined && text === undefined;
  function compare(a, b) {
    if (a.number !== undefined && b.number !== undefined) {
      const [x, y] = [Number(a.number), Number(b.number)];
      return x === y ? 0 : x < y ? -1 : 1; // a difference of infinities would be NaN
    }
    if (a.number !== undefined) return -1;
    if (b.number !== undefined) return 1;
    return collator.compare(a.text, b.text);
  }

  function sorted(rows, column, order) {
    if (order === "none") return rows; // original order
    const key = (row) => row.cells[column].dataset;
    const full = rows.filter((row) => !isEmpty(key(row)));
    const empty = rows.filter((row) => isEmpty(key(row)));
    const sign = order === "ascending" ? 1 : -1;
    return [...full.sort((a, b) => sign * compare(key(a), key(b))), ...empty]; // empty cells last in both directions
  }

  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

  function setUpTable(table) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const name = head.textContent;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.title = "Sort";
      head.replaceChildren(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const order = NEXT[head.getAttribute("aria-sort")];
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", order);
        body.append(...sorted(rows, column, order));
        say(order === "none" ? "Rows as they were written." : `Sorted by ${name}, ${order}.`);
      });
    });
  }

  function setUpFigures() {
    const dialog = document.getElementById("zoom");
    const large = dialog.querySelector("img");
    const stage = dialog.querySelector(".stage");

    function open(figure, button) {
      const image = figure.querySelector("img");
      dialog.querySelector("#zoom-title").textContent = figure.querySelector("h3").textContent;
      dialog.querySelector(".caption").textContent = figure.querySelector("figcaption").textContent;
      large.src = image.src;
      large.alt = image.alt;
      button.focus(); // closing the dialog returns the focus to the button
      dialog.showModal();
      fit(image);
      stage.scrollTo(0, 0);
      dialog.querySelector("#zoom-close").focus();
    }

    // Fit the whole figure into the window, up to its native resolution. Where that is hardly larger than on the page,
    // fit the width only and let the stage scroll.
    function fit(image) {
      const [width, height] = [Number(image.getAttribute("width")), Number(image.getAttribute("height"))];
      const [across, down] = [innerWidth * 0.92 / width, innerHeight * 0.72 / height];
      const whole = Math.min(across, down);
      const scale = Math.max(1, Math.min(image.naturalWidth / width, whole < 1.25 ? across : whole));
      large.width = Math.round(width * scale);
      large.height = Math.round(height * scale);
    }

    for (const figure of document.querySelectorAll("figure")) {
      const button = figure.querySelector(".enlarge");
      button.hidden = false;
      button.addEventListener("click", () => open(figure, button));
      figure.querySelector("img").addEventListener("click", () => open(figure, button));
    }
    dialog.querySelector("#zoom-close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); }); // backdrop
  }

  function setUpCopy() {
    const button = document.getElementById("copy");
    const command = document.querySelector("#command code");
    const tell = (text) => { button.textContent = text; say(text); };
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        tell("Copied");
      } catch { // no clipboard access: select the text instead
        getSelection().selectAllChildren(command);
        tell("Selected: copy it with Ctrl+C");
      }
    });
    button.hidden = false;
  }

  document.addEventListener("DOMContentLoaded", () => {
    root.classList.add("script"); // lets the style sheet mark figures as clickable
    setUpTheme();
    document.querySelectorAll("table").forEach(setUpTable);
    setUpFigures();
    setUpCopy();
  });
})();
