// One call by Stripe's SDK: client.js ADDRESS KEY PARAMETERS RETRIES, and what the SDK made of it.
const Stripe = require('stripe');

const [address, key, parameters, retries] = process.argv.slice(2);
const [host, port] = address.split(':');
const stripe = new Stripe('sk_test_123', {
  protocol: 'http', host, port, maxNetworkRetries: Number(retries), telemetry: false,
});

stripe.charges.create(JSON.parse(parameters), {idempotencyKey: key}).then(
  (charge) => ({id: charge.id ?? null}),
  (error) => ({
    error: error.constructor.name,
    status: error.statusCode,
    type: error.rawType,
    code: error.code,
    message: error.message,
    doc_url: error.doc_url,
  }),
).then((seen) => {
  console.log(JSON.stringify(seen));
  // The SDK leaves what it repeated unread, and Node waits until that connection is closed.
  process.exit();
});
