// Keeps the page live: fetches itself every two seconds and changes only what differs, so that nothing flickers and
// focus, scroll position and what is being typed stay. Without it the pages are the same, as they were when opened.
"use strict";

const EVERY_MS = 2000;
const TYPING_MS = 200;
const NARROW_PX = 500;
const LEGEND_LINE_PX = 19;
const live = document.getElementById("live");
let timer = 0;
let latest = 0;
let loading;

/** Make `old` the same as `fresh`; elements with a data-key are recognised when they have moved. */
function morph(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
        old.replaceWith(fresh);
        return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
        if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
        return;
    }
    if (old.isEqualNode(fresh)) return;
    if (old.dataset.chart !== undefined) {
        if (old.dataset.chart === fresh.dataset.chart) return;
        old.dataset.chart = fresh.dataset.chart;
        draw(old);
        return;
    }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) {
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.nodeName !== "INPUT") morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
    const known = new Map();
    for (const child of old.children) if (child.dataset.key !== undefined) known.set(child.dataset.key, child);
    let place = old.firstChild;
    for (const next of [...fresh.childNodes]) {
        const key = next.nodeType === Node.ELEMENT_NODE ? next.dataset.key : undefined;
        const same = key === undefined ? place : known.get(key);
        if (same === undefined || same === null || (key === undefined && place.dataset?.key !== undefined)) {
            old.insertBefore(next, place);
            continue;
        }
        if (same === place) place = place.nextSibling;
        else old.insertBefore(same, place);
        morph(same, next);
    }
    while (place !== null) {
        const gone = place;
        place = place.nextSibling;
        gone.remove();
    }
}

/** Draw the figure of Plotly in the attribute data-chart, with the colours of the page. */
async function draw(figure) {
    await plotly();
    const { data, layout, config } = JSON.parse(figure.dataset.chart);
    const { color, fontFamily } = getComputedStyle(figure);
    if (figure.clientWidth < NARROW_PX) {
        // A name a line, below the second line of the axis, which has the date.
        const names = LEGEND_LINE_PX * data.filter(({ showlegend }) => showlegend !== false).length;
        layout.height += names;
        layout.margin.b += names;
    }
    await Plotly.react(figure, data, { ...layout, font: { color, family: fontFamily, size: 12 } }, config);
}

/** Load plotly.js, which pages without a chart do not need. */
function plotly() {
    loading ??= new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = "/static/plotly.min.js";
        script.onload = resolve;
        script.onerror = () => {
            loading = undefined;
            reject(new Error("plotly.js was not loaded"));
        };
        document.head.append(script);
    });
    return loading;
}

function drawAll() {
    for (const figure of document.querySelectorAll("[data-chart]")) draw(figure);
}

async function refresh() {
    clearTimeout(timer);
    const number = ++latest;
    try {
        const answer = await fetch(location.href, { cache: "no-store" });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        // A later one, for another search, has been begun.
        if (number !== latest) return;
        morphChildren(document.getElementById("main"), page.getElementById("main"));
        for (const figure of document.querySelectorAll("[data-chart]:empty")) draw(figure);
        document.title = page.title;
        live.textContent = answer.ok ? "live" : "no answer";
        live.className = answer.ok ? "" : "stale";
    } catch {
        live.textContent = "not live";
        live.className = "stale";
    }
    if (number === latest && !document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

function search(input) {
    const address = new URL(location.href);
    if (input.value) address.searchParams.set(input.name, input.value);
    else address.searchParams.delete(input.name);
    history.replaceState(null, "", address);
    clearTimeout(timer);
    timer = setTimeout(refresh, TYPING_MS);
}

/** The focusable elements of the rows, from top to bottom. */
function rows() {
    return [...document.querySelectorAll("tbody a, tbody .clamp")];
}

function onKey(event) {
    const isTyping = event.target instanceof HTMLInputElement;
    if (event.key === "Escape" && isTyping) event.target.blur();
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
        event.preventDefault();
        document.querySelector("input[type=search]")?.focus();
    } else if (event.key === "j" || event.key === "k") {
        const all = rows();
        const at = all.indexOf(document.activeElement);
        all[event.key === "j" ? Math.min(at + 1, all.length - 1) : Math.max(at - 1, 0)]?.focus();
    } else {
        document.querySelector(`nav a[accesskey="${CSS.escape(event.key)}"]`)?.click();
    }
}

document.addEventListener("keydown", onKey);
document.addEventListener("input", (event) => event.target instanceof HTMLInputElement && search(event.target));
document.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("visibilitychange", () => document.hidden || refresh());
timer = setTimeout(refresh, EVERY_MS);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
drawAll();
