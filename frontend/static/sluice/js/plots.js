// Draws the page's charts with Plotly, which is fetched only after the first paint.

const root = document.documentElement;
const holders = new Map();
const NARROW_PX = 400;
const NO_DATA = "No data in this range";
const PNG_TOP_PX = 80;
const COLORED = ["line", "marker", "fillcolor", "colorscale", "colorbar"];
let plotly = null;
let settle;
// Once every chart of the page is drawn, or cannot be: whatever can wait does so until then.
export const drawn = new Promise((resolve) => { settle = resolve; });

// Plotly knows nothing of CSS variables: a probe element resolves each token for the present theme.
function tokenValue(name, probe) {
  if (name === "--font") return getComputedStyle(root).fontFamily;
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

function resolveTokens(value, probe) {
  if (typeof value === "string") return value.startsWith("--") ? tokenValue(value, probe) : value;
  if (Array.isArray(value)) return value.map((each) => resolveTokens(each, probe));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, resolveTokens(each, probe)]));
}

// Of a trace only what has colours is walked: its values may be thousands.
function colors(trace, probe) {
  const named = COLORED.filter((name) => name in trace);
  return Object.fromEntries(named.map((name) => [name, resolveTokens(trace[name], probe)]));
}

const hasValue = (values) => values.some((one) => (Array.isArray(one) ? hasValue(one) : one !== null));

// Axes alone would show a range that nothing was measured in.
function drawNothing(holder) {
  if (plotly) plotly.purge(holder);
  const words = document.createElement("p");
  words.className = "plot-wait";
  words.textContent = NO_DATA;
  holder.replaceChildren(words);
  holder.classList.add("none");
}

function draw(holder, figure) {
  holders.set(holder, figure);
  if (!figure.data.some((trace) => hasValue(trace.z ?? trace.y ?? []))) { drawNothing(holder); return; }
  holder.classList.remove("none");
  if (!plotly) return;
  const probe = document.createElement("span");
  holder.append(probe);
  // The holder's own height, said each time: left to guess, Plotly may draw over what follows.
  const layout = { ...resolveTokens(figure.layout, probe), autosize: true, height: holder.clientHeight };
  // Two columns of names on a phone; Plotly alone would stack and scroll them.
  if (holder.clientWidth < NARROW_PX && figure.data.length > 3) layout.legend = { ...layout.legend, entrywidth: 0.45, entrywidthmode: "fraction", font: { size: 10 } };
  const data = figure.data.map((trace) => ({ ...trace, ...colors(trace, probe) }));
  probe.remove();
  holder.querySelector(".plot-wait")?.remove();
  plotly.react(holder, data, layout, figure.config);
  if (figure.opens && !holder.classList.contains("opens")) {
    holder.classList.add("opens");
    holder.on("plotly_click", (event) => openCell(holders.get(holder).opens, event.points[0]));
  }
  if (layout.xaxis?.type === "date" && !holder.dataset.ranges) { holder.dataset.ranges = "yes"; holder.on("plotly_relayout", askRange); }
}

// What was dragged over becomes the range of the page, where it can be asked for one.
function askRange(event) {
  const form = document.getElementById("range-from")?.form;
  if (!form || !("xaxis.range[0]" in event)) return;
  ["from", "to"].forEach((name, at) => {
    const [day, time = "00:00"] = String(event[`xaxis.range[${at}]`]).split(/[ T]/);
    form[name].value = `${day}T${time.slice(0, 8)}`;
  });
  form.requestSubmit();
}

// As `HeatMap.addresses` makes them for the table.
function openCell(opens, point) {
  const [row, column] = point.pointIndex ?? point.pointNumber;
  const [earlyS, query] = opens.rows[row];
  const [start, end] = [opens.times_s[column] - earlyS, opens.times_s[column] + opens.step_s].map(
    (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19),
  );
  location.assign(`${opens.page}from=${start}&to=${end}&${query}`);
}

export function drawFigures(figures) {
  for (const [name, figure] of Object.entries(figures)) {
    const holder = document.getElementById(`plot-${name}`);
    const before = holders.get(holder)?.layout;
    // Live figures come without the marks that the page was opened with.
    if (before?.shapes && !figure.layout.shapes) {
      const { shapes, annotations, margin } = before;
      figure.layout = { ...figure.layout, shapes, annotations, margin };
    }
    if (holder && JSON.stringify(figure) !== JSON.stringify(holders.get(holder))) draw(holder, figure);
  }
}

// Each in a task of its own, from the top: ten at once would hold the page still for a second.
export async function redrawAll() {
  if (!plotly) return;
  try {
    for (const holder of holders.keys()) {
      draw(holder, holders.get(holder));
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
  } finally {
    settle();
  }
}

function loadPlotly(url) {
  const script = document.createElement("script");
  script.src = url;
  script.addEventListener("load", () => { plotly = window.Plotly; redrawAll(); });
  script.addEventListener("error", () => {
    for (const wait of document.querySelectorAll(".plot-wait")) wait.textContent = "The chart script did not load; the table below has the figures.";
    settle();
  });
  document.head.append(script);
}

const source = document.getElementById("figures");
if (source) {
  drawFigures(JSON.parse(source.textContent));
  requestAnimationFrame(() => setTimeout(() => loadPlotly(document.querySelector("[data-plotly]").dataset.plotly), 0));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
} else {
  settle();
}

// A picture leaves its page: it takes along the ground, the title, and what the page says of range.
function picture(holder) {
  const panel = holder.closest("figure");
  const [title, range] = [panel.querySelector("h2"), document.querySelector(".page-head p")].map(
    (one) => one?.textContent.trim().replace(/\s+/g, " ") ?? "",
  );
  const ground = getComputedStyle(panel).backgroundColor;
  const layout = {
    ...holder.layout,
    paper_bgcolor: ground,
    plot_bgcolor: ground,
    margin: { ...holder.layout.margin, t: holder.layout.margin.t + PNG_TOP_PX },
    title: {
      text: title,
      font: { size: 16 },
      subtitle: { text: range, font: { size: 12 } },
      x: 0.01,
      xanchor: "left",
      y: 1,
      yanchor: "top",
      yref: "container",
      pad: { t: 12 },
    },
    height: holder.clientHeight + PNG_TOP_PX,
    width: holder.clientWidth,
  };
  return { data: holder.data, layout };
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-png]");
  if (!button || !plotly) return;
  const holder = document.getElementById(`plot-${button.dataset.png}`);
  if (!holder.data) return;
  plotly.downloadImage(picture(holder), { format: "png", scale: 2, filename: `sluice-${button.dataset.png}` });
});
