"""One call by Stripe's SDK: client.py ADDRESS KEY PARAMETERS RETRIES, and what the SDK made of it."""

import json
import sys

import stripe

address, key, parameters, retries = sys.argv[1:]
client = stripe.StripeClient(
    "sk_test_123",
    base_addresses={"api": f"http://{address}"},
    max_network_retries=int(retries),
)
try:
    charge = client.v1.charges.create(json.loads(parameters), {"idempotency_key": key})
    seen = {"id": charge.id}
except stripe.StripeError as error:
    body = (error.json_body or {}).get("error", {})
    seen = {
        "error": type(error).__name__,
        "status": error.http_status,
        "type": body.get("type"),
        "code": body.get("code"),
        "message": error.user_message,
        "doc_url": body.get("doc_url"),
    }
print(json.dumps(seen))
