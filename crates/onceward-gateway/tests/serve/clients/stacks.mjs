// One keyed write by each stack: stacks.mjs SECONDS {STACK: URL}, and what each was told in the end.
//
// The seconds are the time-out of one attempt. Every stack retries as its documentation says, after a
// time-out or a 503, and the key is the name of the stack.
import axios from "axios";
import axiosRetry from "axios-retry";
import fetchRetry from "fetch-retry";
import got from "got";
import ky from "ky";
import pRetry from "p-retry";

const RETRIES = 9;
const BODY = { amount: 5 };
const [seconds, urls] = process.argv.slice(2).map((word) => JSON.parse(word));
const timeout = seconds * 1000;

const headersOf = (name) => ({ "Idempotency-Key": name, "x-api-key": "alice" });

function told(status, header, body) {
  return { status, replayed: header("idempotent-replayed") ?? null, body };
}

async function toldByFetch(answer) {
  return told(answer.status, (name) => answer.headers.get(name), await answer.text());
}

/** With a time-out for each attempt. */
function attempt(url, options) {
  return fetch(url, { ...options, signal: AbortSignal.timeout(timeout) });
}

function written(name) {
  const headers = { ...headersOf(name), "Content-Type": "application/json" };
  return { method: "POST", body: JSON.stringify(BODY), headers };
}

const STACKS = {
  async "axios+axios-retry"(name, url) {
    const client = axios.create({ timeout, responseType: "text", transformResponse: (text) => text });
    axiosRetry(client, {
      retries: RETRIES,
      retryDelay: axiosRetry.exponentialDelay,
      retryCondition: (error) => !error.response || error.response.status === 503,
      shouldResetTimeout: true,
    });
    const answer = await client.post(url, BODY, { headers: headersOf(name) });
    return told(answer.status, (header) => answer.headers[header], answer.data);
  },

  async got(name, url) {
    const answer = await got.post(url, {
      json: BODY,
      headers: headersOf(name),
      timeout: { request: timeout },
      retry: { limit: RETRIES, methods: ["POST"], statusCodes: [503], backoffLimit: 200 },
    });
    return told(answer.statusCode, (header) => answer.headers[header], answer.body);
  },

  async ky(name, url) {
    const retry = {
      limit: RETRIES, methods: ["post"], statusCodes: [503], retryOnTimeout: true, backoffLimit: 200,
    };
    return toldByFetch(await ky.post(url, { json: BODY, headers: headersOf(name), timeout, retry }));
  },

  async "fetch+p-retry"(name, url) {
    const call = async () => {
      const answer = await attempt(url, written(name));
      if (answer.status === 503) throw new Error("503");
      return answer;
    };
    return toldByFetch(await pRetry(call, { retries: RETRIES, minTimeout: 100, maxTimeout: 500 }));
  },

  async "fetch+fetch-retry"(name, url) {
    return toldByFetch(await fetchRetry(attempt)(url, {
      ...written(name),
      retryDelay: 100,
      retryOn: (count, error, answer) => count < RETRIES && (error !== null || answer.status === 503),
    }));
  },
};

async function run([name, url]) {
  try {
    return [name, await STACKS[name](name, url)];
  } catch (error) {
    return [name, { error: String(error) }];
  }
}

const answers = await Promise.all(Object.entries(urls).map(run));
console.log(JSON.stringify(Object.fromEntries(answers)));
