// One call by Stripe's SDK: client ADDRESS KEY PARAMETERS RETRIES, and what the SDK made of it.
package main

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/charge"
)

func main() {
	address, key, parameters := os.Args[1], os.Args[2], os.Args[3]
	retries, _ := strconv.ParseInt(os.Args[4], 10, 64)
	stripe.Key = "sk_test_123"
	stripe.SetBackend(stripe.APIBackend, stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:               stripe.String("http://" + address),
		MaxNetworkRetries: stripe.Int64(retries),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	}))
	var given map[string]any
	if err := json.Unmarshal([]byte(parameters), &given); err != nil {
		panic(err)
	}
	wanted := &stripe.ChargeParams{}
	wanted.SetIdempotencyKey(key)
	if amount, is := given["amount"].(float64); is {
		wanted.Amount = stripe.Int64(int64(amount))
	}
	if text, is := given["amount"].(string); is {
		wanted.AddExtra("amount", text)
	}
	if text, is := given["currency"].(string); is {
		wanted.Currency = stripe.String(text)
	}
	if text, is := given["source"].(string); is {
		wanted.AddExtra("source", text)
	}
	made, err := charge.New(wanted)
	seen := map[string]any{}
	var refused *stripe.Error
	switch {
	case errors.As(err, &refused):
		seen = map[string]any{
			"error": "Error", "status": refused.HTTPStatusCode, "type": refused.Type,
			"code": refused.Code, "message": refused.Msg, "doc_url": refused.DocURL,
		}
	case err != nil:
		seen["error"] = err.Error()
	default:
		seen["id"] = made.ID
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		panic(err)
	}
}
