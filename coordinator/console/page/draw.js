// Shared by the pictures: colours, texts, elements, and a drawing that scrolls.

// Okabe and Ito's palette, which people with colour-blindness can tell apart.
// Indices are the numbers of djinn.v1.Phase.
export const PHASES = [
  ['no phase', '#999999'], ['forward', '#0072b2'], ['LLM prefill', '#e69f00'],
  ['LLM decode', '#009e73'], ['vision encoding', '#56b4e9'], ['vision decoding', '#cc79a7'],
  ['fusion', '#f0e442'], ['training', '#d55e00'],
];
// Indices are the numbers of djinn.v1.Residency; the dashes are of outlines.
export const RESIDENCIES = [
  ['unknown', '#999999', []], ['activation', '#999999', []], ['weight', '#000000', []],
  ['KV cache', '#000000', [5, 3]], ['gradient', '#000000', [1, 3]],
];
// Classes of memory, as the memory picture names them.
export const CLASSES = {
  contents: ['contents (shared uploads)', '#0072b2'],
  storages: ['storages of sessions', '#e69f00'],
  caches: ['KV caches', '#009e73'],
  generators: ['generators', '#cc79a7'],
  transfers: ['transfers', '#56b4e9'],
  free: ['free', '#f2f2f2'],
};
// Indices are the numbers of RunRecord.State.
export const RUN_STATES = ['?', 'waiting', 'in service', 'completed', 'failed', 'refused', 'cancelled'];
export const WORKER_STATES = ['?', 'active', 'LOST'];

const SVG = 'http://www.w3.org/2000/svg';

// Makes an element; a text among the children becomes text, never markup.
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}
function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity));
  return element;
}

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let i = 0;
  for (; n >= 1024 && i + 1 < units.length; ++i) n /= 1024;
  return (n >= 100 || i === 0 ? n.toFixed(0) : n.toFixed(1)) + ' ' + units[i];
}
export function micros(n) {
  if (n < 0) return '-';
  if (n < 1000) return n.toFixed(0) + ' µs';
  if (n < 1e6) return (n / 1e3).toFixed(1) + ' ms';
  if (n < 120e6) return (n / 1e6).toFixed(2) + ' s';
  return (n / 60e6).toFixed(1) + ' min';
}
export function count(n) {
  for (const [unit, size] of [['T', 1e12], ['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (n >= 10 * size) return (n / size).toFixed(0) + ' ' + unit;
    if (n >= size) return (n / size).toFixed(1) + ' ' + unit;
  }
  return String(Math.round(n * 100) / 100);
}
export function clock(us) {
  const date = new Date(us / 1000);
  return date.toLocaleTimeString('en-GB') + '.' + String(date.getMilliseconds()).padStart(3, '0');
}

// Returns the positions of an answer's columns by name.
export function columns(names) {
  return Object.fromEntries(names.map((name, i) => [name, i]));
}

// A list of terms and values; absent values are left out.
export function facts(pairs, attributes = {}) {
  return el('dl', attributes, pairs.filter(([, value]) => value !== null && value !== '').map(
      ([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
}

export function table(head, rows) {
  const numeric = head.map((_, i) => rows.length > 0 && rows.every((row) => /^[\d.]/.test(row[i])));
  const cells = (tag, row) => row.map(
      (cell, i) => el(tag, {class: numeric[i] ? 'number' : null}, cell));
  return el('table', {}, el('thead', {}, el('tr', {}, cells('th', head))),
            el('tbody', {}, rows.map((row) => el('tr', {}, cells('td', row)))));
}

// One entry of a legend: a swatch with a colour, an outline or a hatch.
export function swatch(label, {colour = '#fff', outline = '#666', dash = [], width = 1, hatch = false} = {}) {
  const box = svg('svg', {width: 18, height: 12, 'aria-hidden': 'true'},
                  svg('rect', {x: 1.5, y: 1.5, width: 15, height: 9, fill: colour, stroke: outline,
                               'stroke-width': width, 'stroke-dasharray': dash.join(' ')}));
  if (hatch) {
    for (let x = -6; x < 18; x += 5) {
      box.append(svg('line', {x1: x, y1: 11, x2: x + 9, y2: 1, stroke: '#000', 'stroke-width': 1.2}));
    }
  }
  return el('li', {}, box, label);
}

export function legendOfPhases() {
  return PHASES.map(([name, colour]) => swatch(name, {colour}));
}

const hatches = new WeakMap();
// Returns a pattern of slanted lines for a canvas.
export function hatch(context) {
  if (!hatches.has(context)) {
    const tile = new OffscreenCanvas(6, 6);
    const lines = tile.getContext('2d');
    lines.lineWidth = 1.5;
    for (const x of [-6, 0, 6]) {
      lines.moveTo(x, 6);
      lines.lineTo(x + 6, 0);
    }
    lines.stroke();
    hatches.set(context, context.createPattern(tile, 'repeat'));
  }
  return hatches.get(context);
}

// A canvas of the size of its frame over an area of any size. `draw` gets the
// context, the offset and the size of the visible part, and draws that alone.
export class Scrolled {
  constructor(label, draw, onkey, onclick) {
    this.canvas = el('canvas', {'aria-hidden': 'true'});
    this.spacer = el('div', {class: 'spacer'});
    this.frame = el('div', {class: 'scroll', tabindex: 0, role: 'application', 'aria-label': label},
                    this.canvas, this.spacer);
    this.draw = draw;
    this.pending = false;
    this.frame.addEventListener('scroll', () => this.redraw());
    this.frame.addEventListener('keydown', onkey);
    this.canvas.addEventListener('click', (event) => onclick(
        event.offsetX + this.frame.scrollLeft, event.offsetY + this.frame.scrollTop));
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.frame);
  }
  // Sets the size of the whole area.
  extent(width, height) {
    this.spacer.style.width = width + 'px';
    this.spacer.style.height = height + 'px';
  }
  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.paint());
  }
  // Draws at once.
  paint() {
    this.pending = false;
    const {clientWidth: width, clientHeight: height, scrollLeft, scrollTop} = this.frame;
    const scale = devicePixelRatio;
    if (this.canvas.width !== width * scale || this.canvas.height !== height * scale) {
      this.canvas.width = width * scale;
      this.canvas.height = height * scale;
      this.canvas.style.width = width + 'px';
      this.canvas.style.height = height + 'px';
    }
    const context = this.canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    this.draw(context, scrollLeft, scrollTop, width, height);
  }
  // Scrolls so that the rectangle is visible.
  show(x, y, width, height) {
    const frame = this.frame;
    if (x < frame.scrollLeft) frame.scrollLeft = x - 20;
    if (x + width > frame.scrollLeft + frame.clientWidth) frame.scrollLeft = x + width + 20 - frame.clientWidth;
    if (y < frame.scrollTop) frame.scrollTop = y - 20;
    if (y + height > frame.scrollTop + frame.clientHeight) frame.scrollTop = y + height + 20 - frame.clientHeight;
  }
}
