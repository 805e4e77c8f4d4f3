// The lineage picture: the leases that a virtual device had one after another,
// why each ended, and what that cost.
import {bytes, clock, el, micros, svg, swatch, table} from './draw.js';

const WIDTH = 900;
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#56b4e9', '#cc79a7', '#d55e00', '#f0e442'];

class Lineage {
  constructor(root, context) {
    this.context = context;
    this.filter = el('input', {type: 'search', placeholder: 'session, tenant, worker or reason',
                               oninput: () => {
                                 this.context.link.write({filter: this.filter.value});
                                 if (this.answer) this.update(this.answer);
                               }});
    this.body = el('div');
    root.append(
        el('div', {class: 'bar'}, el('label', {}, 'Filter ', this.filter)),
        el('ul', {class: 'legend'}, swatch('a lease; its colour is its worker’s', {colour: '#0072b2'}),
           swatch('lease that was taken away', {colour: '#0072b2', outline: '#c00', width: 2, hatch: true}),
           swatch('without a lease', {dash: [3, 2]})),
        el('p', {class: 'note'}, 'Virtual devices that lost a lease or moved, the latest change first. The device time of a lease ' +
           'that was taken is what the failure cost: results of that time exist no more unless they were moved or are computed again.'),
        this.body);
  }
  close() {}
  follow(query) {
    this.filter.value = query.get('filter') || '';
    if (this.answer) this.update(this.answer);
  }
  load(get) {
    return get('/api/lineage');
  }

  update(answer) {
    this.answer = answer;
    const text = JSON.stringify(answer);
    const now = this.filter.value + text;
    if (now === this.drawn) return;  // So that focus and selection stay.
    this.drawn = now;
    const filter = this.filter.value.toLowerCase();
    const shown = answer.devices.filter((one) => !filter || JSON.stringify(one).toLowerCase().includes(filter));
    this.body.replaceChildren(
        ...(shown.length ? shown.slice(0, 100).map((one) => draw(one)) :
            [el('p', {}, filter ? 'Nothing matches the filter.' : 'No virtual device lost a lease or moved while the console looked.')]),
        shown.length > 100 ? el('p', {class: 'note'}, `${shown.length - 100} more match; filter to see them.`) : '');
  }
}

function draw(one) {
  const spans = one.spans;
  const present = Date.now() * 1000;
  const from = Math.min(...spans.map((span) => span.began), ...one.migrations.map((move) => move.decided));
  const to = Math.max(...spans.map((span) => span.ended < 0 ? present : span.ended), ...one.migrations.map((move) => move.decided), from + 1e6);
  const x = (time) => 4 + (time - from) / (to - from) * (WIDTH - 8);
  const workers = [...new Set(spans.map((span) => span.worker))];
  const name = `virtual device ${one.device}${one.member ? '.' + one.member : ''} of session ${one.session}`;
  const picture = svg('svg', {width: WIDTH, height: 64, role: 'img', 'aria-label': `Leases of ${name} over time; the table below has them`});
  picture.append(svg('line', {x1: x(from), y1: 28, x2: x(to), y2: 28, stroke: '#888', 'stroke-dasharray': '3 2'}));
  for (const span of spans) {
    const left = x(span.began);
    const wide = Math.max(5, x(span.ended < 0 ? to : span.ended) - left);
    const lost = span.end_reason !== '';
    picture.append(svg('rect', {x: left, y: 14, width: wide, height: 28, fill: COLOURS[workers.indexOf(span.worker) % COLOURS.length],
                                stroke: lost ? '#c00' : '#0004', 'stroke-width': lost ? 2.5 : 1},
                       svg('title', {}, `${span.worker}: ${span.end_reason || (span.ended < 0 ? 'in force' : 'returned')}`)));
    for (let at = left; lost && at < left + wide - 8; at += 8) {
      picture.append(svg('line', {x1: at, y1: 42, x2: at + 8, y2: 14, stroke: '#0008'}));
    }
    if (wide > 60) picture.append(svg('text', {x: left + 5, y: 32, fill: '#fff', stroke: '#0009', 'stroke-width': 2.5, 'paint-order': 'stroke'}, span.worker));
    if (lost) picture.append(svg('text', {x: Math.min(left + wide, WIDTH - 4), y: 57, fill: '#a00', 'text-anchor': left + wide > WIDTH / 3 ? 'end' : 'start'}, span.end_reason));
  }
  for (const move of one.migrations) {
    const at = x(move.decided);
    picture.append(svg('path', {d: `M${at} 46 l-5 8 l10 0 z`, fill: move.state === 'FAILED' ? '#c00' : '#000'},
                       svg('title', {}, `migration, ${move.reason}: ${move.state}`)));
  }
  const rows = [
    ...spans.map((span) => [span.began, [
      clock(span.began), 'lease on ' + span.worker, span.ended < 0 ? 'in force' : 'ended ' + clock(span.ended),
      span.end_reason + (span.for_tenant ? ' for ' + span.for_tenant : ''),
      (span.end_reason ? 'lost ' : 'used ') + micros(span.device_time) + ' of device time', span.why]]),
    ...one.migrations.map((move) => [move.decided, [
      clock(move.decided), `migration ${move.from} → ${move.to}`, move.state, move.failure_reason || move.reason,
      `moved ${bytes(move.moved_bytes)}, paused ${micros(move.paused)}`, move.failure]]),
  ].sort((a, b) => a[0] - b[0]).map(([, row]) => row);
  return el('section', {class: 'lineage', 'aria-label': name},
            el('h3', {}, name + ', tenant ' + one.tenant), picture,
            table(['at', 'what', 'state', 'reason', 'cost', 'why there'], rows));
}

export function create(root, context) {
  return new Lineage(root, context);
}
