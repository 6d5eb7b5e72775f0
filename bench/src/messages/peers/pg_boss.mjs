// Works jobs with pg-boss, in large batches and without a pause while batches are full.
import { createInterface } from "node:readline";
import { PgBoss } from "pg-boss";

const boss = new PgBoss({ connectionString: process.env.DATABASE_URL, max: 10 });
boss.on("error", (error) => console.error(error));
await boss.start();
await boss.createQueue("bench");

async function fill(number) {
  const pad = "x".repeat(80);
  for (let done = 0; done < number; done += 1000) {
    const jobs = [];
    for (let n = done; n < Math.min(done + 1000, number); n += 1) jobs.push({ data: { n, pad } });
    await boss.insert("bench", jobs);
  }
  console.log("filled");
}

async function drain(number) {
  let handled = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const options = { batchSize: 1000, localConcurrency: 4, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
  const begun = process.hrtime.bigint();
  await boss.work("bench", options, async (jobs) => {
    handled += jobs.length;
    if (handled >= number) finish(process.hrtime.bigint());
  });
  const ended = await finished;
  await boss.offWork("bench", { wait: true });
  console.log(`drained ${Number(ended - begun) / 1e9} ${handled}`);
}

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [what, number] = line.split(" ");
  await { fill, drain }[what](Number(number));
}
await boss.stop();
process.exit(0);
