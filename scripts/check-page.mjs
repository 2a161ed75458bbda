// Opens pages in headless Chromium, wide and narrow, light and dark, and says what is wrong with them.
//
//   scripts/check-page.sh [--pictures FOLDER] PAGE.html...
//
// Wrong is: an error on the console, a request to any host, a violation found by axe-core, a page wider than its window,
// or text that does not fit its box. With --pictures, screenshots are kept.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.env.PAGE_MODULES, "package.json"));
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const WIDTHS = [1440, 390];
const SCHEMES = ["light", "dark"];

/** What does not fit, in the page itself. */
function misfits() {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth + 1) found.push(`the page is ${document.documentElement.scrollWidth} px wide`);
  for (const element of document.querySelectorAll("h1, h2, p, td, th, li, label, button, code")) {
    const scrolls = element.closest(".wide, pre, .u-legend");
    const box = element.getBoundingClientRect();
    if (!scrolls && box.width > 0 && box.right > innerWidth + 1) found.push(`beyond the edge: ${element.textContent.trim().slice(0, 60)}`);
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX === "hidden") {
      found.push(`clipped: ${element.textContent.trim().slice(0, 60)}`);
    }
  }
  return found;
}

async function problems(browser, file, width, scheme, pictures) {
  const page = await browser.newPage();
  const found = [];
  page.on("console", message => { if (message.type() === "error") found.push(`console: ${message.text()}`); });
  page.on("pageerror", error => found.push(`error: ${error.message}`));
  page.on("request", request => { if (!/^(file|data|blob):/.test(request.url())) found.push(`request: ${request.url()}`); });
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(pathToFileURL(resolve(file)).href, { waitUntil: "load" });
  // Charts are drawn in the next frame.
  await new Promise(done => setTimeout(done, 300));
  found.push(...(await page.evaluate(misfits)));
  if (pictures) {
    const name = `${basename(dirname(resolve(file)))}-${basename(file, ".html")}-${width}-${scheme}.png`;
    await page.screenshot({ path: join(pictures, name), fullPage: true });
  }
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => axe.run());
  for (const { id, nodes, help } of violations) {
    found.push(`axe ${id}: ${help}`, ...nodes.slice(0, 3).map(node => `    ${node.html.slice(0, 160)} ${node.failureSummary?.split("\n")[1] ?? ""}`));
  }
  await page.close();
  return found;
}

const words = process.argv.slice(2);
const pictures = words[0] === "--pictures" ? words.splice(0, 2)[1] : null;
if (pictures) mkdirSync(pictures, { recursive: true });
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
let wrong = 0;
for (const file of words) {
  for (const width of WIDTHS) {
    for (const scheme of SCHEMES) {
      const found = await problems(browser, file, width, scheme, pictures);
      wrong += found.length;
      console.log(`${found.length ? "NO" : "ok"}  ${file}, ${width} px, ${scheme}`);
      for (const line of found) console.log(`    ${line}`);
    }
  }
}
await browser.close();
process.exit(wrong ? 1 : 0);
