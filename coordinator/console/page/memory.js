// The memory picture: a tile for each worker, divided by class and tenant, at
// any moment that the console remembers.
import {CLASSES, Scrolled, WORKER_STATES, bytes, clock, columns, el, facts, svg, swatch, table} from './draw.js';

// As in WORKER_STATES.
const LOST = 2;

class Memory {
  constructor(root, context) {
    this.context = context;
    this.at = null;        // Null: follow the present.
    this.workers = [];
    this.shown = [];
    this.tile = this.across = 1;
    this.chosen = '';
    this.slider = el('input', {type: 'range', min: 0, max: 0, value: 0, 'aria-label': 'Moment',
                               oninput: () => this.slide(), onkeydown: (event) => { if (event.key === 'Home') this.present(event); }});
    this.moment = el('output');
    this.filter = el('input', {type: 'search', placeholder: 'worker, device or tenant', oninput: () => { this.arrange(); this.remember(); }});
    this.drawing = new Scrolled('Memory of workers', (...at) => this.draw(...at), (event) => this.key(event), (x, y) => this.click(x, y));
    this.details = el('div');
    root.append(
        el('div', {class: 'bar'}, el('label', {}, 'Filter ', this.filter), el('label', {}, 'Moment ', this.slider), this.moment,
           el('button', {type: 'button', onclick: (event) => this.present(event)}, 'follow the present')),
        el('ul', {class: 'legend'}, Object.values(CLASSES).map(([name, colour]) => swatch(name, {colour})),
           swatch('chosen', {outline: '#000', width: 2})),
        el('div', {class: 'split'}, this.drawing.frame, el('aside', {'aria-live': 'polite'}, this.details)));
  }
  close() {}
  follow(query) {
    this.at = query.get('at') ? Number(query.get('at')) : null;
    this.chosen = query.get('worker') || this.chosen;
    this.filter.value = query.get('filter') || '';
    if (this.answer) this.context.again();
  }
  remember() {
    this.context.link.write({at: this.at, worker: this.chosen, filter: this.filter.value});
  }
  load(get) {
    return get('/api/memory' + (this.at === null ? '' : '?at=' + this.at));
  }
  slide() {
    if (!this.answer) return;
    const moments = this.answer.moments;
    const index = Number(this.slider.value);
    this.at = index === moments.length - 1 ? null : moments[index];
    this.remember();
    this.context.again();
  }
  present(event) {
    event.preventDefault();
    this.at = null;
    this.remember();
    this.context.again();
  }

  update(answer) {
    this.answer = answer;
    const w = columns(answer.worker_columns);
    const c = columns(answer.columns);
    const before = new Map(this.workers.map((one) => [one.name, one]));
    this.workers = answer.worker_rows.map((row) => ({
      name: answer.names[row[w.worker]], device: answer.names[row[w.device]], state: row[w.state], memory: row[w.memory],
      free: row[w.free], storages: row[w.storages], contents: row[w.contents], idle: row[w.idle_contents], transfers: row[w.transfers],
      caches: row[w.caches], contentEvictions: row[w.content_evictions], planEvictions: row[w.plan_evictions], tenants: []}));
    for (const row of answer.rows) {
      this.workers[row[c.worker_row]].tenants.push({
        tenant: answer.names[row[c.tenant]], contents: row[c.contents], storages: row[c.storages], caches: row[c.caches],
        generators: row[c.generators]});
    }
    for (const one of this.workers) {
      const old = before.get(one.name);
      one.evicted = old ? one.contentEvictions - old.contentEvictions : 0;
    }
    const moments = answer.moments;
    this.slider.max = moments.length - 1;
    let index = moments.findIndex((time) => time === answer.at);
    if (index < 0) index = moments.length - 1;
    this.slider.value = index;
    this.moment.textContent = clock(answer.at) + (this.at === null ? ', the latest' : ', the past');
    this.slider.setAttribute('aria-valuetext', this.moment.textContent);
    this.arrange();
    this.drawing.paint();
  }

  // Chooses the workers and the size of their tiles.
  arrange() {
    const filter = this.filter.value.toLowerCase();
    this.shown = this.workers.filter((one) => !filter || [one.name, one.device, ...one.tenants.map((t) => t.tenant)].some(
        (text) => text.toLowerCase().includes(filter)));
    const {clientWidth: width, clientHeight: height} = this.drawing.frame;
    const area = Math.max(1, width - 8) * Math.max(1, height - 8) / Math.max(1, this.shown.length);
    this.tile = Math.max(14, Math.min(420, Math.floor(Math.sqrt(area)) - 2));
    this.across = Math.max(1, Math.floor((width - 4) / this.tile));
    while (this.tile > 14 && Math.ceil(this.shown.length / this.across) * this.tile > height - 4) {
      this.tile--;
      this.across = Math.max(1, Math.floor((width - 4) / this.tile));
    }
    this.drawing.extent(1, Math.ceil(this.shown.length / this.across) * this.tile);
    this.describe();
    this.drawing.redraw();
  }

  draw(context, left, top, width, height) {
    const first = Math.max(0, Math.floor(top / this.tile) * this.across);
    const last = Math.min(this.shown.length, (Math.floor((top + height) / this.tile) + 1) * this.across);
    if (this.tile < 30) {
      this.drawSmall(context, first, last, top);
      return;
    }
    for (let i = first; i < last; ++i) {
      const x = (i % this.across) * this.tile + 2;
      const y = Math.floor(i / this.across) * this.tile - top + 2;
      this.drawTile(context, this.shown[i], x, y, this.tile - 3);
    }
  }
  // Draws tiles by class alone, all of one colour together.
  drawSmall(context, first, last, top) {
    const size = this.tile - 3;
    const place = (i) => [(i % this.across) * this.tile + 2, Math.floor(i / this.across) * this.tile - top + 2];
    const levels = [
      ['free', (one) => one.memory], ['transfers', (one) => one.contents + one.storages + one.transfers],
      ['storages', (one) => one.contents + one.storages], ['caches', (one) => one.contents + one.caches],
      ['contents', (one) => one.contents]];
    for (const [kind, upTo] of levels) {
      context.fillStyle = CLASSES[kind][1];
      for (let i = first; i < last; ++i) {
        const [x, y] = place(i);
        context.fillRect(x, y, size * Math.min(1, upTo(this.shown[i]) / Math.max(1, this.shown[i].memory)), size);
      }
    }
    for (let i = first; i < last; ++i) {
      const one = this.shown[i];
      if (one.state !== 2 && one.name !== this.chosen) continue;
      context.strokeStyle = one.name === this.chosen ? '#000' : '#c00';
      context.lineWidth = 2.5;
      context.strokeRect(...place(i), size, size);
    }
  }
  drawTile(context, one, x, y, size) {
    const label = size > 70 ? 16 : 0;
    if (label) {
      context.fillStyle = '#1b1b1b';
      context.fillText(one.name + (one.state === LOST ? ' LOST' : ''), x + 2, y + 8, size - 4);
    }
    for (const box of tree(one, x, y + label, size, size - label)) {
      context.fillStyle = CLASSES[box.kind][1];
      context.fillRect(box.x, box.y, box.width, box.height);
      if (size > 40 && box.tenant !== undefined && box.width > 2 && box.height > 2) {
        context.strokeStyle = '#fff';
        context.lineWidth = 1;
        context.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
        if (box.height > 14 && box.width > 40) {
          context.fillStyle = box.kind === 'free' ? '#555' : '#fff';
          context.fillText(box.tenant || CLASSES[box.kind][0], box.x + 4, box.y + 9, box.width - 8);
        }
      }
    }
    const chosen = one.name === this.chosen;
    context.strokeStyle = chosen ? '#000' : one.state === LOST ? '#c00' : '#8888';
    context.lineWidth = chosen ? 2.5 : 1;
    context.strokeRect(x, y + label, size, size - label);
  }

  choose(index) {
    if (!this.shown.length) return;
    index = Math.max(0, Math.min(this.shown.length - 1, index));
    this.chosen = this.shown[index].name;
    this.drawing.show(0, Math.floor(index / this.across) * this.tile, 1, this.tile);
    this.remember();
    this.describe();
    this.drawing.redraw();
  }
  key(event) {
    const moves = {ArrowLeft: -1, ArrowRight: 1, p: -1, n: 1, ArrowUp: -this.across, ArrowDown: this.across};
    if (event.key === 'Home') return this.present(event);
    if (!(event.key in moves) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const at = this.shown.findIndex((one) => one.name === this.chosen);
    this.choose(at < 0 ? 0 : at + moves[event.key]);
  }
  click(x, y) {
    const column = Math.floor((x - 2) / this.tile);
    const index = Math.floor((y - 2) / this.tile) * this.across + column;
    if (column < this.across && index < this.shown.length) this.choose(index);
  }

  describe() {
    const one = this.workers.find((each) => each.name === this.chosen);
    if (!one) {
      // A lost worker has no memory any more.
      const there = this.workers.filter((each) => each.state !== LOST);
      const lost = this.workers.length - there.length;
      const sum = (field) => there.reduce((total, each) => total + each[field], 0);
      this.details.replaceChildren(el('h2', {}, 'All workers'), facts([
        ['workers', there.length + (lost ? `, and ${lost} lost` : '')], ['memory', bytes(sum('memory'))], ['free', bytes(sum('free'))],
        ['storages', bytes(sum('storages'))], ['contents', bytes(sum('contents'))], ['of these idle', bytes(sum('idle'))]]),
        el('p', {class: 'note'}, 'Click a worker, or use the arrow keys in the drawing.'));
      return;
    }
    const wide = 320, high = 200;
    const map = svg('svg', {width: wide, height: high, role: 'img', 'aria-label': `Memory of ${one.name}; the table below has the numbers`});
    for (const box of tree(one, 0, 0, wide, high)) {
      map.append(svg('rect', {x: box.x, y: box.y, width: box.width, height: box.height, fill: CLASSES[box.kind][1], stroke: '#fff'},
                     svg('title', {}, `${box.tenant || ''} ${CLASSES[box.kind][0]} ${bytes(box.bytes)}`)));
    }
    this.details.replaceChildren(
        el('h2', {}, one.name), map,
        facts([['device', one.device], ['state', WORKER_STATES[one.state]], ['memory', bytes(one.memory)],
               ['free', `${bytes(one.free)}, evictable contents included`], ['storages', bytes(one.storages)],
               ['of these KV caches', bytes(one.caches)], ['contents', bytes(one.contents)],
               ['of these idle', `${bytes(one.idle)}: evicted when memory is needed`], ['transfers', bytes(one.transfers)],
               ['contents evicted', `${one.contentEvictions} to make room` + (one.evicted > 0 ? `, ${one.evicted} since the picture before` : '')],
               ['plans evicted', `${one.planEvictions}, least recently used`]]),
        el('h3', {}, 'By tenant'),
        one.tenants.length ? table(['tenant', 'contents', 'storages', 'KV', 'generators'], one.tenants.map((t) => [
          t.tenant, bytes(t.contents), bytes(t.storages), bytes(t.caches), bytes(t.generators)])) : el('p', {}, 'No tenant has a lease there.'),
        el('p', {class: 'note'}, 'Contents that sessions share count in full for each tenant, and once for the worker.'));
  }
}

// Divides a rectangle by class, then by tenant. A class takes what the worker's
// ledger says; its tenants divide that in proportion to their use.
function tree(one, x, y, width, height) {
  if (one.state === 2) return [];  // It reports nothing.
  const right = x + width;
  const tenantsOf = (kind) => one.tenants.filter((t) => t[kind] > 0).map((t) => [t.tenant, t[kind]]);
  const classes = [
    ['contents', one.contents, tenantsOf('contents')], ['caches', one.caches, tenantsOf('caches')],
    ['storages', Math.max(0, one.storages - one.caches), tenantsOf('storages')],
    ['generators', one.tenants.reduce((total, t) => total + t.generators, 0), tenantsOf('generators')],
    ['transfers', one.transfers, []],
  ];
  const used = classes.reduce((total, [, size]) => total + size, 0);
  classes.push(['free', Math.max(0, one.memory - used), []]);
  const all = Math.max(1, used, one.memory);
  const boxes = [];
  for (const [kind, size, tenants] of classes) {
    if (size <= 0 || x >= right) continue;
    // What is there is visible, however little it is; the rest is free.
    const wide = kind === 'free' ? right - x : Math.min(right - x, Math.max(2, width * size / all));
    const total = tenants.reduce((sum, [, n]) => sum + n, 0);
    let top = y;
    for (const [tenant, n] of total > 0 ? tenants : [['', 1]]) {
      const high = height * n / (total || 1);
      boxes.push({kind, tenant, bytes: total > 0 ? n : size, x, y: top, width: wide, height: high});
      top += high;
    }
    x += wide;
  }
  return boxes;
}

export function create(root, context) {
  return new Memory(root, context);
}
