// The page: who may see it, which picture it shows, and when to look again.
import * as graph from './graph.js';
import * as lineage from './lineage.js';
import * as memory from './memory.js';
import * as shares from './shares.js';
import * as time from './time.js';
import {clock} from './draw.js';

const VIEWS = {graph, time, shares, memory, lineage};
// Other tabs of the browser do not see it, and it ends with the tab.
const KEY = 'djinn-console-code';

const $ = (id) => document.getElementById(id);
let code = sessionStorage.getItem(KEY) || '';
let view = null;
let name = '';
let round = -1;
let timer = 0;

class Refused extends Error {}

// Fetches data. Throws Refused when the code is not accepted.
async function get(path) {
  const reply = await fetch(path, {headers: {Authorization: 'Bearer ' + code}}).catch(() => {
    throw new Error('djinnctl console does not answer. Is it still running?');
  });
  const answer = await reply.json();
  if (reply.status === 401) throw new Refused(answer.text);
  if (!reply.ok) throw new Error(answer.text || answer.reason);
  return answer;
}

// What the address says behind "#VIEW?".
const link = {
  read() {
    return new URLSearchParams(location.hash.split('?')[1] || '');
  },
  // Changes the address without an entry in the history.
  write(values) {
    const all = new URLSearchParams();
    for (const [key, value] of Object.entries(values)) {
      if (value !== null && value !== '') all.set(key, value);
    }
    const text = all.toString();
    history.replaceState(null, '', '#' + name + (text ? '?' + text : ''));
  },
};

function tell(text) {
  $('problem').hidden = !text;
  $('problem').textContent = text;
}

function showOverview(overview) {
  const lost = overview.lost ? `, ${overview.lost} lost` : '';
  $('state').textContent = overview.at === undefined ? 'nothing seen yet' :
    `${many(overview.workers, 'worker')}${lost}, ${many(overview.sessions, 'session')}, ` +
    `${many(overview.leases, 'lease')}, ${overview.waiting} waiting · seen at ${clock(overview.at)}`;
  tell(overview.error ? `The coordinator does not answer since ${clock(overview.error.since)}: ` +
       `${overview.error.text}. Below is what was seen last.` : '');
}

function many(n, noun) {
  return `${n} ${noun}${n === 1 ? '' : 's'}`;
}

async function look() {
  clearTimeout(timer);
  if (!code) return askForCode('');
  let next = 2000;
  const shown = view;
  try {
    const overview = await get('/api/overview');
    next = Math.max(50, overview.interval / 1000);
    showOverview(overview);
    $('login').hidden = true;
    $('view').hidden = false;
    if (overview.round !== round && overview.at !== undefined) {
      const answer = await shown.load(get);
      if (shown !== view) return;
      const began = performance.now();
      shown.update(answer);
      note(performance.now() - began);
      round = overview.round;
    }
  } catch (error) {
    if (error instanceof Refused) return askForCode(error.message);
    if (error instanceof TypeError) console.error(error);  // A mistake of the page.
    tell(error.message);
  }
  clearTimeout(timer);
  timer = setTimeout(look, next);
}

// Times for tests: of the first paint since the page was asked for, and of the
// longest and the last update.
function note(took) {
  const data = document.body.dataset;
  if (!data.firstPaint) {
    requestAnimationFrame(() => setTimeout(() => {
      data.firstPaint = performance.now().toFixed(1);
    }));
    return;
  }
  data.updates = Number(data.updates || 0) + 1;
  data.lastUpdate = took.toFixed(1);
  data.longestUpdate = Math.max(Number(data.longestUpdate || 0), took).toFixed(1);
}

function askForCode(problem) {
  sessionStorage.removeItem(KEY);
  code = '';
  $('view').hidden = true;
  $('login').hidden = false;
  $('refused').textContent = problem;
  $('state').textContent = '';
  $('code').focus();
}

function open() {
  const wanted = location.hash.slice(1).split('?')[0];
  const chosen = VIEWS[wanted] ? wanted : 'time';
  if (chosen === name && view) {
    view.follow(link.read());
    return;
  }
  name = chosen;
  for (const a of document.querySelectorAll('nav a')) {
    if (a.getAttribute('href') === '#' + name) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  if (view) view.close();
  $('view').replaceChildren();
  view = VIEWS[name].create($('view'), {link, again: () => { round = -1; look(); }, get});
  view.follow(link.read());
  document.title = `Djinn console: ${name}`;
  round = -1;
  look();
}

addEventListener('hashchange', open);
$('login').addEventListener('submit', (event) => {
  event.preventDefault();
  code = $('code').value.trim();
  $('code').value = '';
  sessionStorage.setItem(KEY, code);
  round = -1;
  look().then(() => { if (!$('view').hidden) $('view').focus(); });
});
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape') $('help').hidden = true;
  if (event.target.matches('input:not([type=range]), select')) return;
  if (event.key === '?') {
    $('help').hidden = !$('help').hidden;
  } else if (event.key >= '1' && event.key <= '5') {
    location.hash = Object.keys(VIEWS)[event.key - 1];
  } else if (event.key === '/') {
    const filter = document.querySelector('input[type=search]');
    if (!filter) return;
    filter.focus();
    event.preventDefault();
  }
});
open();
