// The shares picture: what each tenant is entitled to, has, lends and borrows,
// and what waits.
import {bytes, count, el, micros, svg, swatch, table} from './draw.js';

const WIDTH = 620;
const MAX_TENANTS = 200;

class Shares {
  constructor(root, context) {
    this.context = context;
    this.resource = el('select', {onchange: () => this.changed()});
    this.filter = el('input', {type: 'search', placeholder: 'tenant or cohort', oninput: () => this.changed()});
    this.body = el('div');
    this.resourceWanted = '';
    root.append(
        el('div', {class: 'bar'}, el('label', {}, 'Resource ', this.resource), el('label', {}, 'Filter ', this.filter)),
        el('ul', {class: 'legend'}, swatch('may use: own quota less what is lent at most, to quota plus what it may borrow', {colour: '#dbe9f4', outline: '#7aa6c8'}),
           swatch('uses of its own', {colour: '#0072b2'}), swatch('uses of others’', {colour: '#e69f00', hatch: true}),
           swatch('own quota', {outline: '#000', width: 2})),
        this.body);
  }
  close() {}
  follow(query) {
    this.resourceWanted = query.get('resource') || '';
    this.filter.value = query.get('filter') || '';
    if (this.answer) this.update(this.answer);
  }
  changed() {
    this.resourceWanted = this.resource.value;
    this.context.link.write({resource: this.resource.value, filter: this.filter.value});
    if (this.answer) this.update(this.answer);
  }
  load(get) {
    return get('/api/shares');
  }

  update(answer) {
    this.answer = answer;
    const resources = [...new Set(answer.tenants.flatMap((one) => one.quotas.map((quota) => quota.resource)))].sort();
    resources.unshift('device time');
    const chosen = resources.includes(this.resourceWanted) ? this.resourceWanted : resources[0];
    if (resources.join() !== this.known) {
      this.known = resources.join();
      this.resource.replaceChildren(...resources.map((name) => el('option', {value: name}, name)));
    }
    this.resource.value = chosen;
    const filter = this.filter.value.toLowerCase();
    const tenants = answer.tenants.filter((one) => (one.tenant + '\n' + one.cohort).toLowerCase().includes(filter));
    const shown = tenants.slice(0, MAX_TENANTS);
    this.body.replaceChildren(
        el('h2', {}, chosen === 'device time' ? 'Device time: fair share and use' : `Quota and use: ${chosen}`),
        chosen === 'device time' ? this.deviceTime(shown) : this.quotas(shown, chosen),
        tenants.length > shown.length ?
          el('p', {class: 'note'}, `${tenants.length - shown.length} more tenants; filter to see them.`) : '',
        el('h2', {}, 'What waits, and for what'), this.waiting(shown, answer.held));
  }

  deviceTime(tenants) {
    const draw = (one) => {
      const bar = svg('svg', {width: WIDTH, height: 26, role: 'img', 'aria-label':
                              `${one.tenant}: fair share ${percent(one.fair_share)}, use ${percent(one.device_time_share)}`});
      bar.append(rect(0, 2, one.fair_share * WIDTH, 10, '#dbe9f4', '#7aa6c8'),
                 rect(0, 14, one.device_time_share * WIDTH, 10, '#0072b2'));
      return bar;
    };
    return table(['tenant', 'weight', 'fair share', 'share of use', 'device time', 'leases', 'fair share above, use below'],
                 tenants.map((one) => [one.tenant, count(one.weight), percent(one.fair_share || 0), percent(one.device_time_share || 0),
                                       micros(one.device_time || 0), String(one.leases), draw({fair_share: 0, device_time_share: 0, ...one})]));
  }

  quotas(tenants, resource) {
    const rows = tenants.map((one) => [one, one.quotas.find((quota) => quota.resource === resource)]).filter(([, quota]) => quota);
    const most = Math.max(1e-9, ...rows.map(([, quota]) => Math.max(
        quota.used, quota.nominal + (quota.borrowing_limit ?? quota.nominal * 0.25))));
    const text = (value) => resource.includes('bytes') ? bytes(value) : count(value);
    const scale = (value) => value / most * (WIDTH - 4);
    const draw = (one, quota) => {
      const low = quota.lending_limit === null ? 0 : quota.nominal - quota.lending_limit;
      const high = quota.borrowing_limit === null ? most : quota.nominal + quota.borrowing_limit;
      const own = quota.used - quota.borrowed;
      const bar = svg('svg', {width: WIDTH, height: 26, role: 'img', 'aria-label':
                              `${one.tenant}: quota ${text(quota.nominal)}, uses ${text(quota.used)}`});
      bar.append(rect(scale(low), 2, scale(high - low), 22, '#dbe9f4', '#7aa6c8'),
                 rect(0, 7, scale(own), 12, '#0072b2'),
                 rect(scale(own), 7, scale(quota.borrowed), 12, '#e69f00', '#000'),
                 rect(scale(quota.nominal) - 1, 0, 2, 26, '#000'));
      for (let x = scale(own); x < scale(quota.used) - 6; x += 6) {
        bar.append(svg('line', {x1: x, y1: 19, x2: x + 6, y2: 7, stroke: '#000'}));
      }
      return bar;
    };
    const cohorts = new Map();
    for (const row of rows) {
      const name = row[0].cohort || '';
      if (!cohorts.has(name)) cohorts.set(name, []);
      cohorts.get(name).push(row);
    }
    return el('div', {}, [...cohorts].map(([cohort, members]) => {
      const lenders = members.filter(([, quota]) => quota.lent > 0).map(([one, quota]) => `${one.tenant} ${text(quota.lent)}`);
      const borrowers = members.filter(([, quota]) => quota.borrowed > 0).map(([one, quota]) => `${one.tenant} ${text(quota.borrowed)}`);
      return [el('h3', {}, cohort ? `Cohort ${cohort}` : 'Without a cohort'),
              cohort ? el('p', {class: 'note'}, borrowers.length ?
                          `Lent by ${lenders.join(', ')}, to ${borrowers.join(', ')}.` : 'Nobody lends now.') : '',
              table(['tenant', 'own quota', 'uses', 'borrows', 'lends', ''], members.map(([one, quota]) => [
                one.tenant + (one.stopped ? ' (queue stopped)' : ''), text(quota.nominal), text(quota.used), text(quota.borrowed),
                text(quota.lent), draw(one, quota)]))];
    }));
  }

  waiting(tenants, held) {
    const names = new Set(tenants.map((one) => one.tenant));
    const waits = tenants.filter((one) => one.waiting > 0);
    const shown = held.filter((one) => names.has(one.tenant));
    if (!waits.length && !shown.length) return el('p', {}, 'Nothing waits.');
    return el('div', {},
              waits.length ? table(['tenant', 'virtual devices that wait', 'oldest', 'reasons'], waits.map((one) => [
                one.tenant, String(one.waiting), micros(one.oldest_wait),
                Object.entries(one.reasons).map(([reason, n]) => `${reason || 'not considered yet'}: ${n}`).join(', ')])) : '',
              shown.length ? table(['session', 'tenant', 'device', 'reason', 'that is', 'what would help'], shown.slice(0, 500).map(
                  (one) => [one.session, one.tenant, String(one.device), one.reason, one.message, one.unblocked_by])) : '');
  }
}

function percent(share) {
  return (100 * share).toFixed(1) + ' %';
}
function rect(x, y, width, height, fill, stroke = 'none') {
  return svg('rect', {x, y, width: Math.max(0, width), height, fill, stroke});
}

export function create(root, context) {
  return new Shares(root, context);
}
