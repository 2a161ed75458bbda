// Asks Perfetto's own engine about a trace.
//
// usage: node perfetto-sql.mjs ENGINE_FOLDER TRACE "SQL" ["SQL" ...]
//
// ENGINE_FOLDER is the web_dist/vXX folder that scripts/perfetto-setup.sh prints. Prints one JSON object a query:
// {"cols":[...],"rows":[[...],...]} or {"error":"..."}. Exit status: 0; 1 where a query is refused; 2 where the trace is.

import { Engine, failShortly } from './perfetto-engine.mjs';

failShortly('perfetto-sql');
const [engineFolder, trace, ...queries] = process.argv.slice(2);
if (!trace) throw new Error('usage: node perfetto-sql.mjs ENGINE_FOLDER TRACE "SQL" ["SQL" ...]');

const engine = await Engine.start(engineFolder, trace);
console.error('trace_processor:', engine.version);
const started = Date.now();
engine.load(trace);
console.error(`loaded ${trace} in ${Date.now() - started} ms`);

let status = 0;
for (const sql of queries) {
  const answer = engine.query(sql);
  if (answer.error !== undefined) status = 1;
  console.log(JSON.stringify(answer));
}
process.exit(status);
