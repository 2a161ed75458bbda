// Checks a trace of ours with Perfetto's own engine and against the raw file.
//
// usage: node check-trace.mjs ENGINE_FOLDER TRACE(.json|.json.gz) [REPORT.json]     (check-trace.sh finds the folder)
//
// Perfetto drops some things without a word (it binds an arrow's end that lies outside any slice to the last slice
// before it), so arrows are compared end by end with what the file asked for. With a report, counts must agree:
// /trace/decode_slices_expected, and /trace/step_slices_expected where it is there.
//
// What a trace must hold for the batch chains: one slice of category `step` for each step, arg `batch`; slices of the
// stages before it have the stage as category and arg `batch`; those of single samples also `sample` (and `samples`
// where one slice covers that many in a row), the batch slice `last_sample`. One flow named `batch`, category `batch`,
// id = batch + 1, leads from the first stage in which that batch has a slice through each later one to its step.

import fs from 'node:fs';
import readline from 'node:readline';
import zlib from 'node:zlib';
import { Engine, failShortly } from './perfetto-engine.mjs';

/** Stages behind those of samples, which are whatever the pipeline calls them. */
const ENDS = ['batch', 'copy', 'step'];
const DETAILS_SHOWN = 5;

// ---- the raw file ----

/** The flow events of the file as { id, points }, in order of time, and what is wrong with its lines. */
async function readRaw(trace) {
  const plain = fs.createReadStream(trace);
  const input = trace.endsWith('.gz') ? plain.pipe(zlib.createGunzip()) : plain;
  const raw = { chains: new Map(), problems: [], closed: false };
  let number = 0;
  let torn = 0;
  for await (const line of readline.createInterface({ input, crlfDelay: Infinity })) {
    number++;
    const event = line.endsWith(',') ? line.slice(0, -1) : line;
    if (event === '[' || event === '') continue;
    if (event === ']') raw.closed = true;
    else if (/^\{.*\}$/.test(event) && !event.includes('},{"ph":')) readEvent(event, number, raw);
    else raw.problems.push(`line ${(torn = number)} is not one event`);
  }
  // A killed run may leave its last line half written; Perfetto passes over that.
  if (!raw.closed && torn === number) raw.problems.pop();
  for (const points of raw.chains.values()) points.sort((a, b) => a.at - b.at || a.line - b.line);
  return raw;
}

function readEvent(text, line, raw) {
  if (/"[pt]id":0[,}]/.test(text)) {
    raw.problems.push(`line ${line}: pid and tid start at 1, Perfetto merges tid 0 into another lane`);
  }
  if (!/"ph":"[stf]"/.test(text)) return;
  const { ph, id, cat, name, pid, tid, ts } = JSON.parse(text);
  const key = JSON.stringify([cat, name, id]);
  if (!raw.chains.has(key)) raw.chains.set(key, []);
  raw.chains.get(key).push({ ph, pid, tid, at: Math.round(ts * 1000), line });
}

// ---- Perfetto's view ----

const SLICES = `
  select s.id, s.ts, s.dur, s.category, s.name, t.tid, p.pid,
    extract_arg(s.arg_set_id, 'args.batch') as batch,
    extract_arg(s.arg_set_id, 'args.sample') as sample,
    extract_arg(s.arg_set_id, 'args.samples') as samples,
    extract_arg(s.arg_set_id, 'args.last_sample') as last_sample
  from slice s join thread_track k on s.track_id = k.id join thread t using (utid) left join process p using (upid)`;

const quoted = (words) => words.map((word) => `'${word}'`).join(', ');

/** Only slices that arrows touch and steps: a trace may hold millions of others. */
function readSlices(engine) {
  const arrows = engine.objects('select slice_out, slice_in from flow');
  const slices = engine.objects(`${SLICES} where s.category = 'step' or s.id in
    (select slice_out from flow union select slice_in from flow)`);
  const byLane = new Map();
  for (const slice of slices) {
    const lane = `${slice.pid}/${slice.tid}`;
    if (!byLane.has(lane)) byLane.set(lane, []);
    byLane.get(lane).push(slice);
  }
  for (const lane of byLane.values()) lane.sort((a, b) => a.ts - b.ts || b.dur - a.dur);
  return { arrows, slices, byLane };
}

/** The touched slices that cover a point, found by binary search; nesting is shallow, so few steps back suffice. */
function covering(byLane, point) {
  const lane = byLane.get(`${point.pid}/${point.tid}`) ?? [];
  let low = 0;
  for (let high = lane.length; low < high; ) {
    const middle = (low + high) >> 1;
    if (lane[middle].ts <= point.at) low = middle + 1;
    else high = middle;
  }
  return lane.slice(Math.max(0, low - 64), low).filter((slice) => point.at <= slice.ts + slice.dur).reverse();
}

// ---- the checks: each returns what is wrong, as lines ----

function checkStats(engine) {
  const named = ['flow_end_without_start', 'flow_step_without_start', 'flow_no_enclosing_slice'];
  return engine
    .objects(`select name, severity, value from stats where value > 0
      and (severity in ('error', 'data_loss') or name in (${quoted(named)}))`)
    .map(({ name, severity, value }) => `${name} = ${value} (${severity})`);
}

function checkDurations(engine) {
  return engine
    .objects('select name, ts, dur from slice where dur < 0 limit 20')
    .map(({ name, ts, dur }) => `slice ${name} at ${ts} ns lasts ${dur} ns`);
}

/** Compares each arrow the file asked for with one Perfetto drew; fills `bound` with the slices of each chain. */
function checkArrows(raw, { arrows, byLane }, bound) {
  const wrong = [];
  const drawn = new Map();
  const arrowKey = (out, into) => `${out.id}>${into.id}`;
  for (const { slice_out, slice_in } of arrows) {
    const key = `${slice_out}>${slice_in}`;
    drawn.set(key, (drawn.get(key) ?? 0) + 1);
  }
  let asked = 0;
  for (const [flow, points] of raw.chains) {
    const kinds = points.map((point) => point.ph).join('');
    if (!/^st*f$/.test(kinds)) wrong.push(`flow ${flow} is "${kinds}" in time, not one start, steps and one end`);
    asked += points.length - 1;
    // Perfetto draws an arrow from the slice that began first, also where that is the one it ends in.
    const turned = (out, into) => (into.ts < out.ts ? arrowKey(into, out) : arrowKey(out, into));
    const chain = bindChain(points, byLane, (out, into) => drawn.get(turned(out, into)) > 0);
    if (typeof chain === 'string') {
      wrong.push(`flow ${flow}: ${chain}`);
      continue;
    }
    for (let i = 1; i < chain.length; i++) {
      const key = turned(chain[i - 1], chain[i]);
      drawn.set(key, drawn.get(key) - 1);
    }
    bound.set(flow, chain);
  }
  if (asked !== arrows.length) wrong.push(`the file asks for ${asked} arrows, Perfetto draws ${arrows.length}`);
  return wrong;
}

/** The slices a chain's points lie in, or what is wrong. */
function bindChain(points, byLane, isDrawn) {
  const chain = [];
  for (const [index, point] of points.entries()) {
    const candidates = covering(byLane, point);
    const place = `its end at ${point.at} ns on lane ${point.pid}/${point.tid} (line ${point.line})`;
    if (candidates.length === 0) return `${place} lies in no slice that an arrow touches`;
    const fits = index === 0
      ? candidates.find((slice) => points.length < 2 || covering(byLane, points[1]).some((next) => isDrawn(slice, next)))
      : candidates.find((slice) => isDrawn(chain[index - 1], slice));
    if (!fits) return `${place} is bound to another slice than the one it lies in`;
    chain.push(fits);
  }
  return chain;
}

function checkCount(engine, report, pointer, category) {
  const expected = report.trace?.[pointer];
  if (!Number.isInteger(expected)) return [`the report has no number at /trace/${pointer}`];
  const [{ count }] = engine.objects(`select count(*) as count from slice where category = '${category}'`);
  return count === expected ? [] : [`${count} ${category} slices in the trace, the report expects ${expected}`];
}

/** The stages of samples, in the order of the data's way. */
function sampleStages(engine) {
  return engine
    .objects(`select category, min(ts) as first from slice
      where extract_arg(arg_set_id, 'args.sample') is not null and category != 'skipped'
      group by category order by first`)
    .map(({ category }) => category);
}

/** Which stages each batch has slices of: `batch` -> set of stages. */
function stagesOfBatches(engine, names) {
  const stages = new Map();
  for (const { batch, category } of engine.objects(`
    select distinct extract_arg(arg_set_id, 'args.batch') as batch, category from slice
    where category in (${quoted(names)})`)) {
    if (!stages.has(batch)) stages.set(batch, new Set());
    stages.get(batch).add(category);
  }
  return stages;
}

function checkChains(engine, slices, bound) {
  const samples = sampleStages(engine);
  const names = [...samples, ...ENDS];
  const stages = stagesOfBatches(engine, names);
  const seen = new Set();
  const wrong = [];
  for (const step of slices.filter((slice) => slice.category === 'step')) {
    const where = `step at ${step.ts} ns (batch ${step.batch})`;
    if (!Number.isInteger(step.batch)) wrong.push(`${where} has no arg batch`);
    else if (seen.has(step.batch)) wrong.push(`${where}: a second step slice of that batch`);
    else {
      seen.add(step.batch);
      const chain = bound.get(JSON.stringify(['batch', 'batch', step.batch + 1]));
      const problem = chain ? chainProblem(step, chain, names, samples, stages.get(step.batch)) : 'no whole flow chain leads to it';
      if (problem) wrong.push(`${where}: ${problem}`);
    }
  }
  return wrong;
}

function chainProblem(step, chain, names, samples, present) {
  const stray = chain.find((slice) => slice.batch !== step.batch);
  if (stray) return `its chain passes the ${stray.category} slice of batch ${stray.batch} at ${stray.ts} ns`;
  const expected = names.filter((stage) => present.has(stage));
  const found = chain.map((slice) => slice.category);
  if (found.join() !== expected.join()) return `its chain goes ${found.join(' > ')}, the batch has ${expected.join(' > ')}`;
  if (chain.at(-1).id !== step.id) return 'its chain ends in another step slice';
  const collate = chain.find((slice) => slice.category === 'batch');
  const single = chain.filter((slice) => samples.includes(slice.category));
  if (single.length === 0) return null;
  if (!Number.isInteger(collate?.last_sample)) return 'its batch slice has no arg last_sample';
  const last = collate.last_sample;
  const other = single.find(({ sample, samples }) => !(sample <= last && last < sample + (samples ?? 1)));
  if (other) return `its ${other.category} slice is of sample ${other.sample}, the batch's last sample is ${last}`;
  return null;
}

// ---- all together ----

function report(name, wrong) {
  console.log(`${wrong.length ? 'FAIL' : 'ok  '} ${name}`);
  for (const line of wrong.slice(0, DETAILS_SHOWN)) console.log(`       ${line}`);
  if (wrong.length > DETAILS_SHOWN) console.log(`       and ${wrong.length - DETAILS_SHOWN} more`);
  return wrong.length === 0;
}

failShortly('check-trace');
const [engineFolder, trace, reportFile] = process.argv.slice(2);
if (!trace) throw new Error('usage: node check-trace.mjs ENGINE_FOLDER TRACE [REPORT.json]');
const expected = reportFile ? JSON.parse(fs.readFileSync(reportFile, 'utf8')) : null;

const raw = await readRaw(trace);
const engine = await Engine.start(engineFolder, trace);
engine.load(trace);
const view = readSlices(engine);
const bound = new Map();
const steps = view.slices.filter((slice) => slice.category === 'step').length;
const checks = [
  ['the file is an array of one event a line', raw.problems],
  ['Perfetto dropped nothing', checkStats(engine)],
  ['every slice has an end', checkDurations(engine)],
  [`all ${view.arrows.length} arrows join the slices their ends lie in`, checkArrows(raw, view, bound)],
  [`a chain leads each batch from its last sample to its step (${steps} steps)`, checkChains(engine, view.slices, bound)],
];
if (expected) {
  checks.push(['as many decode slices as the report counted', checkCount(engine, expected, 'decode_slices_expected', 'decode')]);
  if (expected.trace?.step_slices_expected !== undefined) {
    checks.push(['as many step slices as the report counted', checkCount(engine, expected, 'step_slices_expected', 'step')]);
  }
}
if (!raw.closed) console.log('note the array is not closed: the run was cut short');
const good = checks.map(([name, wrong]) => report(name, wrong)).every(Boolean);
process.exit(good ? 0 : 1);
