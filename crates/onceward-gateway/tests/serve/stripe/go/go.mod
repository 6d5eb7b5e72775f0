module onceward.example/stripe-client

go 1.22

require github.com/stripe/stripe-go/v85 v85.0.0
