// The time picture: a lane for each worker, and on it the runs.
import {PHASES, RUN_STATES, Scrolled, clock, columns, el, facts, hatch, legendOfPhases, micros, swatch} from './draw.js';

const LANE = 20;
const LABEL = 170;
const AXIS = 24;
// Compares names such as w9 and w10.
const byName = new Intl.Collator('en', {numeric: true}).compare;

class Time {
  constructor(root, context) {
    this.context = context;
    this.runs = new Map();   // By id.
    this.lanes = new Map();  // Of worker names: a map of runs by id.
    this.shown = [];
    this.after = 0;
    this.forgotten = 0;
    this.rest = null;        // The older changes that are still to be asked for.
    this.span = 60e6;
    this.to = null;          // Null: follow the present.
    this.latest = 0;
    this.selected = null;
    this.filter = el('input', {type: 'search', placeholder: 'worker, tenant or session', 'aria-label': 'Filter',
                               oninput: () => { this.order(); this.remember(); }});
    this.range = el('output');
    this.drawing = new Scrolled('Runs of workers over time', (...at) => this.draw(...at),
                                (event) => this.key(event), (x, y) => this.click(x, y));
    this.details = el('div');
    root.append(
        el('div', {class: 'bar'}, el('label', {}, 'Filter ', this.filter),
           el('button', {type: 'button', onclick: () => this.pan(-0.5)}, '← earlier'),
           el('button', {type: 'button', onclick: () => this.pan(0.5)}, 'later →'),
           el('button', {type: 'button', onclick: () => this.zoom(0.5)}, 'zoom in'),
           el('button', {type: 'button', onclick: () => this.zoom(2)}, 'zoom out'),
           el('button', {type: 'button', onclick: () => this.present()}, 'follow the present'),
           el('button', {type: 'button', onclick: () => this.save()}, 'save for Perfetto'), this.range),
        el('ul', {class: 'legend'}, legendOfPhases(), swatch('waited', {colour: '#ddd'}),
           swatch('was preempted meanwhile', {hatch: true}),
           swatch('failed or refused', {outline: '#c00', width: 2})),
        el('div', {class: 'split'}, this.drawing.frame,
           el('aside', {'aria-live': 'polite'}, el('h2', {}, 'Run'), this.details)));
    this.describe();
  }

  close() {}
  follow(query) {
    this.to = query.get('to') ? Number(query.get('to')) : null;
    this.span = Number(query.get('span')) || this.span;
    this.filter.value = query.get('filter') || '';
    this.order();
  }
  remember() {
    this.context.link.write({to: this.to, span: this.to === null ? '' : this.span, filter: this.filter.value});
  }

  // The newest come first, so that there is something to see at once; each
  // later answer has a piece of the rest.
  async load(get) {
    const fresh = await get('/api/runs?after=' + this.after);
    const older = this.rest && await get(`/api/runs?after=${this.rest.after}&before=${this.rest.before}`);
    return {fresh, older};
  }
  update({fresh, older}) {
    if (fresh.last_change < this.after) {  // Another djinnctl console.
      this.runs.clear();
      this.lanes.clear();
      this.rest = older = null;
      this.after = this.forgotten = 0;
    }
    const before = this.lanes.size;
    if (older) {
      this.take(older);
      this.rest = older.rest_before ? {after: this.rest.after, before: older.rest_before} : null;
    }
    this.take(fresh);
    if (fresh.rest_before && !this.rest) this.rest = {after: this.after, before: fresh.rest_before};
    this.after = fresh.last_change;
    this.forget(fresh.first_change);
    if (before !== this.lanes.size || this.filter.value) this.order();
    if (!this.selected || this.runs.get(this.selected.id) !== this.selected) {
      this.selected = this.selected && this.runs.get(this.selected.id) || this.selected;
      this.describe();
    }
    this.drawing.paint();
  }
  take(answer) {
    const c = columns(answer.columns);
    const names = answer.names;
    for (const row of answer.rows) {
      const known = this.runs.get(row[c.id]);
      if (known && known.change >= row[c.change]) continue;
      const run = {
        id: row[c.id], change: row[c.change], worker: names[row[c.worker]], tenant: names[row[c.tenant]],
        session: names[row[c.session]], graph: names[row[c.graph]], device: row[c.device],
        member: row[c.member], number: row[c.number], phase: row[c.phase], state: row[c.state],
        reason: names[row[c.reason]], preemptedBy: names[row[c.preempted_by]],
        received: row[c.received], waited: row[c.waited], served: row[c.served],
        deviceTime: row[c.device_time], yields: row[c.yields], yieldedFor: row[c.yielded_for],
      };
      this.runs.set(run.id, run);
      let lane = this.lanes.get(run.worker);
      if (!lane) this.lanes.set(run.worker, lane = new Map());
      lane.set(run.id, run);
      this.latest = Math.max(this.latest, end(run));
    }
  }
  // Forgets what the console has forgotten.
  forget(first) {
    if (first === this.forgotten) return;
    this.forgotten = first;
    for (const run of this.runs.values()) {
      if (run.change >= first) continue;
      this.runs.delete(run.id);
      const lane = this.lanes.get(run.worker);
      lane.delete(run.id);
      if (!lane.size) this.lanes.delete(run.worker);
    }
  }

  // Chooses the lanes and the runs that the filter lets through.
  order() {
    const filter = this.filter.value.toLowerCase();
    const matches = (run) => [run.worker, run.tenant, run.session].some((text) => text.toLowerCase().includes(filter));
    this.matches = filter ? matches : () => true;
    this.shown = [...this.lanes].filter(
        ([, lane]) => !filter || [...lane.values()].some(matches)).map(([worker]) => worker).sort(byName);
    this.drawing.extent(1, AXIS + this.shown.length * LANE);
    this.drawing.redraw();
  }

  window() {
    const to = this.to === null ? this.latest + this.span * 0.02 : this.to;
    return [to - this.span, to];
  }

  draw(context, left, top, width, height) {
    const [from, to] = this.window();
    const scale = (width - LABEL) / (to - from);
    const x = (time) => LABEL + (time - from) * scale;
    this.range.textContent = this.latest === 0 ? '' : `${clock(from)} to ${clock(to)}` + (this.to === null ? ', following' : '');
    const first = Math.max(0, Math.floor(top / LANE));
    const last = Math.min(this.shown.length, Math.ceil((top + height) / LANE));
    for (let i = first; i < last; ++i) {
      const y = AXIS + i * LANE - top;
      if (i % 2) {
        context.fillStyle = '#f6f6f6';
        context.fillRect(0, y, width, LANE);
      }
      const runs = [...(this.lanes.get(this.shown[i])?.values() || [])].filter(this.matches);
      for (const run of runs) this.drawWait(context, run, x, y, width);
      for (const run of runs) this.drawRun(context, run, x, y, width);
      context.fillStyle = '#fffd';
      context.fillRect(0, y, LABEL - 4, LANE);
      context.fillStyle = '#1b1b1b';
      context.fillText(this.shown[i], 6, y + LANE / 2, LABEL - 14);
    }
    this.drawAxis(context, from, to, x, width);
    if (!this.shown.length) {
      context.fillStyle = '#555';
      context.fillText(this.runs.size ? 'No run matches the filter.' : 'No run was seen yet.', LABEL + 10, 60);
    }
  }

  drawWait(context, run, x, y, width) {
    const x0 = Math.max(LABEL - 5, x(run.received)), x1 = Math.min(width, x(run.received + run.waited));
    if (x1 < LABEL || x0 > width) return;
    context.fillStyle = '#ddd';
    context.fillRect(x0, y + 7, Math.max(1, x1 - x0), 6);
  }
  drawRun(context, run, x, y, width) {
    const x0 = x(run.received), x1 = x(run.received + run.waited), x2 = x(end(run));
    if (x2 < LABEL || x0 > width) return;
    const clip = (value) => Math.min(width + 5, Math.max(LABEL - 5, value));
    if (run.served >= 0) {
      const wide = Math.max(1.5, clip(x2) - clip(x1));
      context.fillStyle = PHASES[run.phase]?.[1] || '#999';
      context.fillRect(clip(x1), y + 3, wide, LANE - 6);
      if (run.yields) {
        context.fillStyle = hatch(context);
        context.fillRect(clip(x1), y + 3, Math.max(3, wide), LANE - 6);
      }
    }
    if (run.state === 4 || run.state === 5) {
      context.strokeStyle = '#c00';
      context.lineWidth = 2;
      context.strokeRect(clip(x0), y + 2, Math.max(4, clip(x2) - clip(x0)), LANE - 4);
    }
    if (this.selected && this.selected.id === run.id) {
      context.strokeStyle = '#000';
      context.lineWidth = 2;
      context.strokeRect(clip(x0) - 3, y + 1, Math.max(4, clip(x2) - clip(x0)) + 6, LANE - 2);
    }
  }

  drawAxis(context, from, to, x, width) {
    context.fillStyle = '#fff';
    context.fillRect(0, 0, width, AXIS);
    context.fillStyle = '#444';
    context.strokeStyle = '#0002';
    context.lineWidth = 1;
    let step = 10 ** Math.ceil(Math.log10((to - from) / 10));
    if ((to - from) / step < 4) step /= 2;
    for (let time = Math.ceil(from / step) * step; time < to; time += step) {
      context.beginPath();
      context.moveTo(x(time), 0);
      context.lineTo(x(time), 4000);
      context.stroke();
      const label = step >= 1e6 ? clock(time).slice(0, 8) :
          clock(time) + (step >= 1e3 ? '' : String(Math.floor(time % 1e3)).padStart(3, '0'));
      context.fillText(label, x(time) + 3, AXIS / 2);
    }
  }

  pan(part) {
    this.to = this.window()[1] + part * this.span;
    this.moved();
  }
  zoom(factor) {
    const [from, to] = this.window();
    const wide = Math.min(86400e6, Math.max(100, this.span * factor));
    if (this.to !== null) this.to = (from + to) / 2 + wide / 2;
    this.span = wide;
    this.moved();
  }
  // Shows the selected run at a third of the width.
  fit() {
    const run = this.selected;
    if (!run) return;
    const wide = Math.max(30, end(run) - run.received);
    this.span = 3 * wide;
    this.to = end(run) + wide;
    this.moved();
  }
  present() {
    this.to = null;
    this.moved();
  }
  moved() {
    this.remember();
    this.drawing.redraw();
  }

  key(event) {
    const actions = {
      ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1), '+': () => this.zoom(0.5),
      '-': () => this.zoom(2), Home: () => this.present(), n: () => this.step(1), p: () => this.step(-1),
      Enter: () => this.fit(),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  }
  // Selects the next or the previous run of the selected run's lane; from its
  // end, of the next lane.
  step(by) {
    let lane = this.selected ? this.shown.indexOf(this.selected.worker) : 0;
    const inLane = (i) => [...(this.lanes.get(this.shown[i])?.values() || [])].filter(this.matches).sort(
        (a, b) => a.received - b.received);
    let runs = inLane(lane);
    let at = this.selected ? runs.findIndex((run) => run.id === this.selected.id) + by : 0;
    if (at < 0 || at >= runs.length) {
      lane = (lane + by + this.shown.length) % this.shown.length;
      runs = inLane(lane);
      at = by > 0 ? 0 : runs.length - 1;
    }
    if (runs[at]) this.select(runs[at]);
  }
  select(run) {
    this.selected = run;
    const [from, to] = this.window();
    if (end(run) < from || run.received > to) {
      this.to = end(run) + this.span / 2;
      this.remember();
    }
    this.drawing.show(this.drawing.frame.scrollLeft, AXIS + this.shown.indexOf(run.worker) * LANE, 1, LANE);
    this.describe();
    this.drawing.redraw();
  }
  click(x, y) {
    const lane = this.lanes.get(this.shown[Math.floor((y - AXIS) / LANE)]);
    if (!lane) return;
    const [from, to] = this.window();
    const time = from + (x - LABEL) / (this.drawing.frame.clientWidth - LABEL) * (to - from);
    const slack = this.span * 0.004;
    const run = [...lane.values()].find((one) => this.matches(one) && time >= one.received - slack && time <= end(one) + slack);
    if (run) this.select(run);
  }

  describe() {
    const run = this.selected;
    if (!run) {
      const states = new Map();
      for (const one of this.runs.values()) states.set(one.state, (states.get(one.state) || 0) + 1);
      this.details.replaceChildren(
          facts([['runs seen', String(this.runs.size)],
                 ...[...states].sort().map(([state, n]) => [RUN_STATES[state], String(n)])]),
          el('p', {class: 'note'}, 'Click a run, or press n in the drawing. Workers remember the last 16 runs of each ' +
             'lease, and the console asks for them in turn: of a busy session it sees samples.'));
      return;
    }
    this.details.replaceChildren(facts([
      ['run', `${run.device}${run.member ? '.' + run.member : ''}:${run.number}`],
      ['session', run.session], ['tenant', run.tenant], ['worker', run.worker],
      ['graph', run.graph ? el('a', {href: '#graph?fingerprint=' + encodeURIComponent(run.graph)}, run.graph.slice(0, 16)) : '-'],
      ['phase', PHASES[run.phase]?.[0] || String(run.phase)], ['state', RUN_STATES[run.state]],
      ['why', run.reason], ['received', clock(run.received)], ['waited', micros(run.waited)],
      ['served', micros(run.served)], ['device time', micros(run.deviceTime)],
      ['preempted', run.yields ? `${run.yields} times, ${micros(run.yieldedFor)} in total, last by ${run.preemptedBy}` : null],
    ]));
  }

  // Writes the visible time as a trace for ui.perfetto.dev.
  save() {
    const [from, to] = this.window();
    const events = [];
    this.shown.forEach((worker, lane) => {
      events.push({ph: 'M', pid: 1, tid: lane, name: 'thread_name', args: {name: worker}});
      for (const run of this.lanes.get(worker).values()) {
        if (!this.matches(run) || end(run) < from || run.received > to || run.served < 0) continue;
        events.push({ph: 'X', pid: 1, tid: lane, ts: run.received + run.waited, dur: run.served,
                     name: `${run.session}/${run.device}:${run.number}`, cat: PHASES[run.phase]?.[0],
                     args: {tenant: run.tenant, graph: run.graph, waited_us: run.waited, device_time_us: run.deviceTime,
                            yields: run.yields, state: RUN_STATES[run.state]}});
      }
    });
    const url = URL.createObjectURL(new Blob([JSON.stringify({traceEvents: events})], {type: 'application/json'}));
    el('a', {href: url, download: 'djinn-trace.json'}).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}

function end(run) {
  return run.received + run.waited + Math.max(0, run.served);
}

export function create(root, context) {
  return new Time(root, context);
}
