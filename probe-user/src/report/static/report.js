// Zoom, search and keys. Everything that it shows is on the page already: it moves boxes and sets
// classes, makes no element out of text, and loads nothing.
"use strict";
(() => {
  const live = document.getElementById("live");
  const say = (text) => { live.textContent = text; };
  const NARROWEST = 0.0015;
  // Pixels in which a label says anything.
  const LEGIBLE = 32;
  document.documentElement.classList.add("live");

  const duration = (ns) => {
    for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
      if (ns >= scale * 0.9995) return `${Number((ns / scale).toPrecision(3))} ${unit}`;
    }
    return `${Math.round(ns)} ns`;
  };

  const placeOf = (box) => parseFloat(box.getAttribute("x")) / 100;
  // A box that would be too narrow to be seen is drawn wider, and tells its true width.
  const widthOf = (box) => Number(box.dataset.w ?? parseFloat(box.getAttribute("width")) / 100);

  // A drawing of which a part, from `a` to `b` of 0 to 1, fills the width.
  class View {
    constructor(svg) {
      this.ns = Number(svg.dataset.ns);
      this.boxes = [...svg.querySelectorAll(".box")].map((box) => ({
        box, x: placeOf(box), w: widthOf(box), whole: box.classList.contains("check"),
        label: box.querySelector(":scope > text"),
      }));
      this.dots = [...svg.querySelectorAll(".dot")].map((dot) => ({ dot, x: parseFloat(dot.getAttribute("cx")) / 100 }));
      this.byBox = new Map(this.boxes.map((one) => [one.box, one]));
      this.ticks = [...svg.querySelectorAll(".axis text")];
      this.pixels = svg.clientWidth;
      this.show(0, 1);
      new ResizeObserver(() => {
        if (svg.clientWidth === this.pixels) return;
        this.pixels = svg.clientWidth;
        this.show(this.a, this.b);
      }).observe(svg);
    }

    show(a, b) {
      const least = 1e-6;
      const width = Math.min(1, Math.max(least, b - a));
      this.a = Math.min(1 - width, Math.max(0, a));
      this.b = this.a + width;
      const pixels = this.pixels / width;
      for (const { box, x, w, whole, label } of this.boxes) {
        const from = whole ? x : Math.max(x, this.a);
        const to = whole ? x + w : Math.min(x + w, this.b);
        const seen = x + w >= this.a && x <= this.b && (w === 0 || to > from);
        box.classList.toggle("away", !seen);
        box.setAttribute("display", seen ? "inline" : "none");
        if (!seen) continue;
        box.setAttribute("x", `${((from - this.a) / width) * 100}%`);
        box.setAttribute("width", `${Math.max((to - from) / width, NARROWEST) * 100}%`);
        if (label) label.classList.toggle("tiny", (to - from) * pixels < LEGIBLE);
      }
      for (const { dot, x } of this.dots) {
        const place = (x - this.a) / width;
        dot.setAttribute("display", place >= 0 && place <= 1 ? "inline" : "none");
        dot.setAttribute("cx", `${place * 100}%`);
      }
      for (const tick of this.ticks) {
        const at = this.a + Number(tick.dataset.at) * width;
        tick.textContent = at === 0 ? "0" : `+${duration(at * this.ns)}`;
      }
    }

    zoom(factor, centre = (this.a + this.b) / 2) {
      const width = (this.b - this.a) * factor;
      this.show(centre - width / 2, centre + width / 2);
    }

    move(part) {
      const by = (this.b - this.a) * part;
      this.show(this.a + by, this.b + by);
    }

    of(box) {
      return this.byBox.get(box);
    }

    told() {
      return `from ${duration(this.a * this.ns)} to ${duration(this.b * this.ns)}`;
    }
  }

  const timeline = (svg) => {
    const view = new View(svg);
    const links = [...svg.querySelectorAll(".checklink")];
    const at = new Map(links.map((link) => [link, view.of(link.querySelector(".box"))]));
    const article = (link) => document.getElementById(link.getAttribute("href").slice(1));

    const choose = (link, scroll) => {
      for (const other of links) other.classList.toggle("chosen", other === link);
      for (const shown of document.querySelectorAll("article.check.chosen")) shown.classList.remove("chosen");
      article(link).classList.add("chosen");
      if (scroll) {
        article(link).focus();
        article(link).scrollIntoView({ block: "nearest" });
        say(`${link.getAttribute("aria-label")}, shown below`);
      }
    };
    const visit = (link) => {
      const { x: from, w } = at.get(link);
      const to = from + w;
      if (from < view.a || to > view.b) view.show(from - 0.1 * (view.b - view.a), from + 0.9 * (view.b - view.a));
      for (const other of links) other.setAttribute("tabindex", other === link ? "0" : "-1");
      link.focus();
    };
    const act = {
      in: () => view.zoom(0.5), out: () => view.zoom(2), left: () => view.move(-0.25), right: () => view.move(0.25),
      reset: () => view.show(0, 1),
    };
    const zoom = (how) => { act[how](); say(`Timeline ${view.told()}`); };
    for (const button of document.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => zoom(button.dataset.zoom));
    }
    links.forEach((link, number) => {
      link.setAttribute("tabindex", number === 0 ? "0" : "-1");
      link.addEventListener("click", (event) => { event.preventDefault(); choose(link, true); });
    });
    svg.addEventListener("keydown", (event) => {
      const number = links.indexOf(document.activeElement);
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -links.length, End: links.length }[event.key];
      const keys = { "+": "in", "=": "in", "-": "out", Escape: "reset", 0: "reset" };
      if (step && event.shiftKey) zoom(step < 0 ? "left" : "right");
      else if (step && number >= 0) visit(links[Math.min(links.length - 1, Math.max(0, number + step))]);
      else if (keys[event.key] && !event.ctrlKey && !event.metaKey) zoom(keys[event.key]);
      else return;
      event.preventDefault();
    });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const edge = svg.getBoundingClientRect();
      view.zoom(event.deltaY < 0 ? 0.8 : 1.25, view.a + (view.b - view.a) * ((event.clientX - edge.left) / edge.width));
    }, { passive: false });
    const longest = links.reduce((best, link) => (best && at.get(best).w >= at.get(link).w ? best : link), null);
    if (longest) choose(longest, false);
    // A link to a check from elsewhere shows it too.
    const follow = () => {
      const link = links.find((one) => one.getAttribute("href") === location.hash);
      if (link) choose(link, true);
    };
    window.addEventListener("hashchange", follow);
    follow();
  };

  const flame = (svg) => {
    const view = new View(svg);
    const id = svg.id.slice("flame-".length);
    const blocks = [...svg.querySelectorAll("[role=treeitem]")].map((item) => {
      const { box, x, w, label } = view.of(item.querySelector(".box"));
      const name = item.querySelector("title").textContent;
      return { item, box, level: Number(item.getAttribute("aria-level")), x, w, name, text: label.textContent.toLowerCase() };
    });
    blocks.forEach(({ item }, number) => item.setAttribute("tabindex", number === 0 ? "0" : "-1"));
    const shown = (block) => block && !block.box.classList.contains("away");
    const within = (one, other) => one.x >= other.x - 1e-9 && one.x + one.w <= other.x + other.w + 1e-9;
    const zoom = (block) => {
      view.show(block.x, block.x + block.w);
      for (const { item, box, level } of blocks) {
        item.classList.toggle("below", level < block.level && !box.classList.contains("away"));
      }
      say(`${block.name} fills the width`);
    };
    const visit = (block) => {
      if (!shown(block)) return;
      for (const other of blocks) other.item.setAttribute("tabindex", other === block ? "0" : "-1");
      block.item.focus();
    };
    const next = (block, key) => {
      const level = block.level + { ArrowUp: 1, ArrowDown: -1 }[key] || block.level;
      const row = blocks.filter((other) => other.level === level && shown(other));
      if (key === "ArrowUp") return row.filter((other) => within(other, block)).sort((one, two) => two.w - one.w)[0];
      if (key === "ArrowDown") return row.find((other) => within(block, other));
      return row[row.indexOf(block) + (key === "ArrowRight" ? 1 : -1)];
    };
    for (const block of blocks) {
      block.item.addEventListener("click", () => { zoom(block); visit(block); });
    }
    svg.addEventListener("keydown", (event) => {
      const block = blocks.find((one) => one.item === document.activeElement);
      if (!block) return;
      if (event.key.startsWith("Arrow")) visit(next(block, event.key));
      else if (event.key === "Enter" || event.key === " ") zoom(block);
      else if (event.key === "Escape") zoom(blocks[0]);
      else return;
      event.preventDefault();
    });
    document.querySelector(`[data-unzoom="${id}"]`).addEventListener("click", () => zoom(blocks[0]));

    // The part of the width on which a block that fits stands, or one that stands on such a block.
    const search = (input, output) => {
      const wanted = input.value.toLowerCase();
      const found = blocks.filter(({ text }) => wanted !== "" && text.includes(wanted));
      for (const { item } of blocks) item.classList.remove("found");
      let [end, sum] = [0, 0];
      for (const block of found) block.item.classList.add("found");
      for (const { x, w } of [...found].sort((one, two) => one.x - two.x || two.w - one.w)) {
        sum += Math.max(0, x + w - Math.max(x, end));
        end = Math.max(end, x + w);
      }
      output.textContent = wanted === "" ? "" : `${found.length} found, ${(sum * 100).toFixed(1)} % of the width`;
      say(output.textContent);
    };
    const input = document.querySelector(`[data-search="${id}"]`);
    const output = document.querySelector(`[data-matched="${id}"]`);
    input.addEventListener("input", () => search(input, output));
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { input.value = ""; search(input, output); }
    });
  };

  const zoomable = document.getElementById("timeline");
  if (zoomable) timeline(zoomable);
  for (const svg of document.querySelectorAll(".flamegraph")) flame(svg);
})();
