// What the page does beyond being read: a theme to choose, tables that sort, figures to enlarge, a command to copy.
// It reads only what the page already shows, and asks for nothing from outside. Without it all content is still there.
"use strict";
(() => {
  const KEY = "regtta-report-theme";
  const root = document.documentElement;

  // Browsers may refuse to remember anything (private windows, files): the choice then lasts as long as the page.
  const remembered = () => {
    try { return localStorage.getItem(KEY); } catch { return null; }
  };
  const remember = (theme) => {
    try { localStorage.setItem(KEY, theme); } catch { /* not kept */ }
  };

  // Before the page is painted, so that it never flashes in the other theme.
  const chosen = remembered();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  const say = (text) => { document.getElementById("status").textContent = text; };

  function setUpTheme() {
    const button = document.getElementById("theme");
    const system = matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
    // The button says what it will do.
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

  // Numbers before texts; "9 seeds" before "10 seeds". A cell with neither key is empty.
  const collator = new Intl.Collator("en", { numeric: true });
  const isEmpty = ({ number, text }) => number === undefined && text === undefined;
  function compare(a, b) {
    if (a.number !== undefined && b.number !== undefined) {
      const [x, y] = [Number(a.number), Number(b.number)];
      return x === y ? 0 : x < y ? -1 : 1; // a difference would be NaN between infinities
    }
    if (a.number !== undefined) return -1;
    if (b.number !== undefined) return 1;
    return collator.compare(a.text, b.text);
  }

  function sorted(rows, column, order) {
    if (order === "none") return rows; // as the page was written
    const key = (row) => row.cells[column].dataset;
    const full = rows.filter((row) => !isEmpty(key(row)));
    const empty = rows.filter((row) => isEmpty(key(row)));
    const sign = order === "ascending" ? 1 : -1;
    return [...full.sort((a, b) => sign * compare(key(a), key(b))), ...empty]; // empty ones last, either way
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
      button.focus(); // closing gives the focus back to what had it
      dialog.showModal();
      fit(image);
      stage.scrollTo(0, 0);
      dialog.querySelector("#zoom-close").focus();
    }

    // As large as the window shows whole, up to the pixels it has. Where that is hardly larger than on the page, as
    // wide as the window, or at its own size: then the stage scrolls.
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
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); }); // beside it
  }

  function setUpCopy() {
    const button = document.getElementById("copy");
    const command = document.querySelector("#command code");
    const tell = (text) => { button.textContent = text; say(text); };
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        tell("Copied");
      } catch { // not allowed here: leave it selected, one key away
        getSelection().selectAllChildren(command);
        tell("Selected: copy it with Ctrl+C");
      }
    });
    button.hidden = false;
  }

  document.addEventListener("DOMContentLoaded", () => {
    root.classList.add("script"); // figures show that they can be clicked
    setUpTheme();
    document.querySelectorAll("table").forEach(setUpTable);
    setUpFigures();
    setUpCopy();
  });
})();
