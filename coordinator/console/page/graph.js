// The graph picture: the calls of one graph from left to right, with phases,
// residency, cost and the critical path.
import {PHASES, RESIDENCIES, Scrolled, bytes, columns, count, el, facts, legendOfPhases, micros, svg, swatch} from './draw.js';

const COLUMN = 46;
const ROW = 34;
const TOP = 30;

class Graph {
  constructor(root, context) {
    this.context = context;
    this.wanted = '';
    this.nodes = [];
    this.selected = -1;
    this.list = el('select', {size: 7, 'aria-label': 'Graphs', onchange: () => this.open(this.list.value)});
    this.filter = el('input', {type: 'search', placeholder: 'fingerprint or phase', oninput: () => this.fillList()});
    this.drawing = new Scrolled('Calls of the graph', (...at) => this.draw(...at), (event) => this.key(event), (x, y) => this.click(x, y));
    this.problem = el('p', {role: 'alert'});
    this.summary = el('div');
    this.times = el('div');
    this.details = el('div');
    root.append(el('ul', {class: 'legend'}, legendOfPhases(), swatch('reads weights', {width: 2, outline: '#000'}),
                   swatch('reads a KV cache', {width: 2, outline: '#000', dash: [5, 3]}),
                   swatch('reads gradients', {width: 2, outline: '#000', dash: [1, 3]}),
                   el('li', {}, svg('svg', {width: 22, height: 8, 'aria-hidden': 'true'},
                                    svg('line', {x1: 0, y1: 4, x2: 22, y2: 4, stroke: '#000', 'stroke-width': 3.5})), 'critical path'),
                   el('li', {}, 'size: cost')),
                el('div', {class: 'split left'},
                   el('aside', {}, el('label', {}, 'Filter ', this.filter), this.list, this.problem, this.summary, this.times,
                      el('div', {'aria-live': 'polite'}, this.details)),
                   this.drawing.frame));
  }
  close() {}
  follow(query) {
    const wanted = query.get('fingerprint') || '';
    if (wanted && wanted !== this.wanted) {
      this.wanted = wanted;
      if (this.graphs) this.context.again();
    }
  }
  open(fingerprint) {
    this.wanted = fingerprint;
    this.context.link.write({fingerprint});
    this.context.again();
  }

  async load(get) {
    const {graphs} = await get('/api/graphs');
    graphs.sort((a, b) => b.runs - a.runs || a.ordinal - b.ordinal);
    const wanted = this.wanted || graphs[0]?.fingerprint;
    let one = null, problem = '';
    if (wanted) {
      try {
        one = await get('/api/graph?fingerprint=' + encodeURIComponent(wanted));
      } catch (error) {
        problem = error.message;
      }
    }
    return {graphs, one, problem};
  }
  update({graphs, one, problem}) {
    this.graphs = graphs;
    this.fillList();
    this.problem.textContent = problem;
    if (!one) {
      if (!graphs.length) this.summary.replaceChildren(el('p', {}, 'The coordinator has no graph yet.'));
      return;
    }
    this.list.value = one.fingerprint;
    const known = this.one && this.one.fingerprint === one.fingerprint;
    this.one = one;
    this.summarize();
    if (!known) {
      this.selected = -1;
      this.arrange();
      this.describe();
    }
    this.drawing.paint();
  }
  fillList() {
    const filter = this.filter.value.toLowerCase();
    const label = (one) => [one.fingerprint.slice(0, 8), count(one.nodes) + ' calls', count(one.runs) + ' runs', PHASES[one.phase]?.[0] || ''].join(' · ');
    const shown = (this.graphs || []).filter((one) => (one.fingerprint + label(one)).toLowerCase().includes(filter)).slice(0, 500);
    const text = shown.map(label).join('\n');
    if (text === this.listed) return;
    this.listed = text;
    this.list.replaceChildren(...shown.map((one) => el('option', {value: one.fingerprint}, label(one))));
    if (this.one) this.list.value = this.one.fingerprint;
  }

  summarize() {
    const one = this.one;
    this.summary.replaceChildren(el('h2', {}, 'Graph ' + one.fingerprint.slice(0, 12)), facts([
      ['phase', PHASES[one.phase]?.[0] || String(one.phase)], ['calls', count(one.nodes)], ['runs', count(one.runs)],
      ['work', `${count(one.flops)} flop, ${bytes(one.read_bytes + one.written_bytes)}`], ['peak memory', bytes(one.peak_bytes)],
      ['weights', bytes(one.weight_bytes)], ['KV caches', bytes(one.kv_cache_bytes)], ['workers with a plan', String(one.workers)]]));
    const bars = one.predicted.map((each) => [`predicted on ${each.worker}`, each.micros, '#56b4e9']);
    if (one.measured.runs) {
      bars.push([`measured device time, mean of ${one.measured.runs}`, one.measured.device_time, '#0072b2']);
      bars.push([`measured, begin to end, mean of ${one.measured.runs}`, one.measured.served, '#d55e00']);
    }
    const most = Math.max(1, ...bars.map(([, time]) => time));
    this.times.replaceChildren(el('h3', {}, 'Predicted and measured time of a run'), ...bars.map(([label, time, colour]) => el(
        'div', {}, `${label}: ${micros(time)}`, el('br'),
        svg('svg', {width: 320, height: 10, 'aria-hidden': 'true'},
            svg('rect', {x: 0, y: 1, width: Math.max(1, time / most * 318), height: 8, fill: colour})))),
      el('p', {class: 'note'}, one.measured.runs ? 'The prediction is the roofline, without learned factors.' :
         'No completed run of this graph was seen yet.'));
  }

  // Places nodes: a node stands right of everything that it reads.
  arrange() {
    const one = this.one;
    const n = columns(one.node_columns), e = columns(one.edge_columns), r = columns(one.read_columns);
    this.nodes = one.node_rows.map((row) => ({
      operator: one.names[row[n.operator]], role: one.names[row[n.role]], phase: row[n.phase], flops: row[n.flops],
      bytes: row[n.bytes], stage: row[n.stage], depth: 0, row: 0, critical: false, reads: []}));
    this.edges = one.edge_rows.map((row) => ({from: row[e.producer], to: row[e.consumer], bytes: row[e.bytes],
                                              critical: row[e.criticality_ppm] >= 999999}));
    for (const row of one.read_rows) {
      const node = this.nodes[row[r.node]];
      node.reads.push({slot: row[r.slot], residency: row[r.residency], bytes: row[r.bytes]});
    }
    for (const edge of this.edges) {  // In the order of producers? Not promised.
      if (edge.critical) this.nodes[edge.from].critical = this.nodes[edge.to].critical = true;
    }
    const inputs = this.nodes.map(() => []);
    for (const edge of this.edges) inputs[edge.to].push(edge.from);
    const rows = [];
    let most = 0;
    this.nodes.forEach((node, i) => {  // Producers come before consumers.
      node.depth = inputs[i].reduce((depth, from) => Math.max(depth, this.nodes[from].depth + 1), 0);
      node.work = node.flops + node.bytes;
      most = Math.max(most, node.work);
      rows[node.depth] = rows[node.depth] || 0;
      node.row = rows[node.depth]++;
    });
    for (const node of this.nodes) {
      node.size = 6 + 16 * Math.sqrt(node.work / Math.max(1, most));
      node.x = 24 + node.depth * COLUMN;
      node.y = TOP + node.row * ROW + ROW / 2;
    }
    this.drawing.extent(60 + rows.length * COLUMN, TOP + 20 + Math.max(0, ...rows) * ROW);
  }

  draw(context, left, top, width, height) {
    if (!this.one) return;
    if (!this.nodes.length) {
      this.drawStages(context, width);
      return;
    }
    const visible = (x) => x > left - COLUMN && x < left + width + COLUMN;
    for (const critical of [false, true]) {
      for (const edge of this.edges) {
        if (edge.critical !== critical) continue;
        const a = this.nodes[edge.from], b = this.nodes[edge.to];
        if (!visible(a.x) && !visible(b.x) && (a.x > left) === (b.x > left)) continue;
        context.strokeStyle = critical ? '#000' : '#8899';
        context.lineWidth = critical ? 3 : 1;
        context.beginPath();
        context.moveTo(a.x - left, a.y - top);
        const middle = (a.x + b.x) / 2 - left;
        context.bezierCurveTo(middle, a.y - top, middle, b.y - top, b.x - left, b.y - top);
        context.stroke();
      }
    }
    this.nodes.forEach((node, i) => {
      if (!visible(node.x)) return;
      const x = node.x - left, y = node.y - top;
      context.beginPath();
      context.arc(x, y, node.size / 2 + 1, 0, 7);
      context.fillStyle = PHASES[node.phase]?.[1] || '#999';
      context.fill();
      const kept = node.reads.reduce((best, read) => Math.max(best, read.residency), 0);
      context.setLineDash(RESIDENCIES[kept]?.[2] || []);
      context.strokeStyle = kept ? RESIDENCIES[kept][1] : '#0005';
      context.lineWidth = kept ? 2 : 1;
      context.stroke();
      context.setLineDash([]);
      if (i === this.selected) {
        context.strokeStyle = '#000';
        context.lineWidth = 2;
        context.strokeRect(x - 15, y - 15, 30, 30);
      }
    });
  }
  // A graph with too many calls is drawn by stages.
  drawStages(context, width) {
    const stages = this.one.stages;
    const all = stages.reduce((sum, stage) => sum + stage.flops + stage.bytes, 0) || 1;
    let x = 10;
    context.fillStyle = '#1b1b1b';
    context.fillText(`${this.one.nodes} calls are too many to draw; these are the ${stages.length} stages by cost.`, 10, 14);
    for (const stage of stages) {
      const wide = (width - 20) * (stage.flops + stage.bytes) / all;
      context.fillStyle = PHASES[stage.phase]?.[1] || '#999';
      context.fillRect(x, TOP, Math.max(1, wide - 1), 60);
      if (stage.weight_bytes) {
        context.strokeStyle = '#000';
        context.lineWidth = 2;
        context.strokeRect(x + 1, TOP + 1, Math.max(1, wide - 3), 58);
      }
      x += wide;
    }
  }

  key(event) {
    const one = this.nodes[this.selected];
    const near = (depth, row) => {
      let best = -1;
      this.nodes.forEach((node, i) => {
        if (node.depth !== depth) return;
        if (best < 0 || Math.abs(node.row - row) < Math.abs(this.nodes[best].row - row)) best = i;
      });
      return best;
    };
    const moves = {
      n: () => this.selected + 1, p: () => this.selected - 1,
      ArrowRight: () => one ? near(one.depth + 1, one.row) : 0, ArrowLeft: () => one ? near(one.depth - 1, one.row) : 0,
      ArrowDown: () => one ? near(one.depth, one.row + 1) : 0, ArrowUp: () => one ? near(one.depth, one.row - 1) : 0,
      Home: () => 0, End: () => this.nodes.length - 1,
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.select(moves[event.key]());
  }
  select(index) {
    const node = this.nodes[index];
    if (!node) return;
    this.selected = index;
    this.drawing.show(node.x - 20, node.y - 20, 40, 40);
    this.describe();
    this.drawing.redraw();
  }
  click(x, y) {
    let best = -1, distance = 24;
    this.nodes.forEach((node, i) => {
      const away = Math.hypot(node.x - x, node.y - y);
      if (away < distance) [best, distance] = [i, away];
    });
    this.select(best);
  }
  describe() {
    const node = this.nodes[this.selected];
    this.details.replaceChildren(el('h2', {}, 'Call'), node ? facts([
      ['number', String(this.selected)], ['operator', node.operator], ['role', node.role], ['phase', PHASES[node.phase]?.[0] || ''],
      ['work', `${count(node.flops)} flop, ${bytes(node.bytes)}`], ['stage', String(node.stage)],
      ['critical path', node.critical ? 'on it' : 'not on it'],
      ...node.reads.map((read) => ['reads #' + read.slot, `${RESIDENCIES[read.residency]?.[0]}, ${bytes(read.bytes)}`])]) :
      el('p', {class: 'note'}, 'Click a call, or press n in the drawing.'));
  }
}

export function create(root, context) {
  return new Graph(root, context);
}
