"""One keyed write by each stack: stacks.py SECONDS {STACK: URL}, and what each was told in the end.

The seconds are the time-out of one attempt. Every stack retries as its documentation says, after a
time-out or a 503, and the key is the name of the stack.
"""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import aiohttp_retry
import backoff
import httpx
import requests
import stamina
import tenacity
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

ATTEMPTS = 10
BODY = {"amount": 5}
SECONDS, URLS = float(sys.argv[1]), json.loads(sys.argv[2])


def headers(name):
    return {"Idempotency-Key": name, "x-api-key": "alice"}


def requests_urllib3(name, url):
    retry = Retry(
        total=ATTEMPTS,
        backoff_factor=0.1,
        allowed_methods=["POST"],
        status_forcelist=[503],
        respect_retry_after_header=True,
    )
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retry))
        return session.post(url, json=BODY, headers=headers(name), timeout=SECONDS)


def requests_backoff(name, url):
    # It comes back when it is told to, and fails when it is not told.
    @backoff.on_predicate(
        backoff.runtime,
        predicate=lambda answer: answer.status_code == 503,
        value=lambda answer: int(answer.headers["Retry-After"]),
        jitter=None,
        max_tries=ATTEMPTS,
    )
    @backoff.on_exception(
        backoff.constant, requests.RequestException, interval=0.1, max_tries=ATTEMPTS
    )
    def call():
        return requests.post(url, json=BODY, headers=headers(name), timeout=SECONDS)

    return call()


def httpx_tenacity(name, url):
    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(httpx.TransportError)
        | tenacity.retry_if_result(lambda answer: answer.status_code == 503),
        wait=tenacity.wait_exponential_jitter(initial=0.1, max=1, jitter=0.1),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
    )
    def call():
        return httpx.post(url, json=BODY, headers=headers(name), timeout=SECONDS)

    return call()


def httpx_stamina(name, url):
    def again(error):
        is_503 = isinstance(error, httpx.HTTPStatusError) and error.response.status_code == 503
        return is_503 or isinstance(error, httpx.TransportError)

    @stamina.retry(on=again, attempts=ATTEMPTS, timeout=None, wait_initial=0.1, wait_max=1)
    def call():
        answer = httpx.post(url, json=BODY, headers=headers(name), timeout=SECONDS)
        answer.raise_for_status()
        return answer

    return call()


def aiohttp_with_retry(name, url):
    async def call():
        options = aiohttp_retry.ExponentialRetry(
            attempts=ATTEMPTS,
            start_timeout=0.1,
            max_timeout=1,
            statuses={503},
            exceptions={asyncio.TimeoutError, aiohttp.ClientError},
            retry_all_server_errors=False,
        )
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        async with aiohttp_retry.RetryClient(retry_options=options, timeout=timeout) as client:
            async with client.post(url, json=BODY, headers=headers(name)) as answer:
                return told(answer.status, answer.headers, await answer.text())

    return asyncio.run(call())


def told(status, headers, body):
    return {"status": status, "replayed": headers.get("Idempotent-Replayed"), "body": body}


STACKS = {
    "requests+urllib3": requests_urllib3,
    "requests+backoff": requests_backoff,
    "httpx+tenacity": httpx_tenacity,
    "httpx+stamina": httpx_stamina,
    "aiohttp+aiohttp-retry": aiohttp_with_retry,
}


def run(stack):
    name, url = stack
    try:
        answer = STACKS[name](name, url)
        if not isinstance(answer, dict):
            answer = told(answer.status_code, answer.headers, answer.text)
    except Exception as error:
        answer = {"error": repr(error)}
    return name, answer


with ThreadPoolExecutor(len(URLS)) as pool:
    print(json.dumps(dict(pool.map(run, URLS.items()))))
