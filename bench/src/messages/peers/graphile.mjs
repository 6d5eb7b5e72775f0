// Works jobs with graphile-worker: as fast as it can, or noting when each of them arrives.
// Its settings are those of its own page about performance.
import { createInterface } from "node:readline";
import { makeWorkerUtils, run } from "graphile-worker";

const preset = {
  worker: {
    connectionString: process.env.DATABASE_URL,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: undefined,
  },
};
process.env.NO_LOG_SUCCESS = "1";
const { Logger } = await import("@graphile/logger");
preset.worker.logger = new Logger(() => () => {});
const utils = await makeWorkerUtils({ preset });
await utils.migrate();

async function fill(number) {
  const pad = "x".repeat(80);
  for (let done = 0; done < number; done += 1000) {
    const specs = [];
    for (let n = done; n < Math.min(done + 1000, number); n += 1) {
      specs.push({ identifier: "bench", payload: { n, pad } });
    }
    await utils.addJobs(specs);
  }
  console.log("filled");
}

async function drain(number) {
  let handled = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const begun = process.hrtime.bigint();
  const bench = () => {
    handled += 1;
    if (handled === number) finish(process.hrtime.bigint());
  };
  const runner = await run({ preset, taskList: { bench }, crontab: "", noHandleSignals: true });
  const ended = await finished;
  await runner.stop();
  console.log(`drained ${Number(ended - begun) / 1e9} ${handled}`);
}

let runner;
let heard = [];

async function listen() {
  heard = [];
  const bench = ({ n }) => void heard.push(`${n}:${process.hrtime.bigint()}`);
  runner = await run({ preset, taskList: { bench }, crontab: "", noHandleSignals: true });
  console.log("listening");
}

async function end() {
  await runner.stop();
  console.log(`heard ${heard.join(" ")}`);
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [what, number] = line.split(" ");
  await { fill, drain, listen, end }[what](Number(number));
}
await utils.release();
process.exit(0);
