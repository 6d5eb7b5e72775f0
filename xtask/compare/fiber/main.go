// The service with Fiber's idempotency middleware, its store and lock in memory.
package main

import (
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
)

type order struct {
	Cents *int64 `json:"cents"`
	To    string `json:"to"`
}

var total atomic.Int64

func main() {
	app := fiber.New()
	app.Get("/count", func(c fiber.Ctx) error {
		return c.JSON(fiber.Map{"total": total.Load()})
	})
	app.Use(authenticate)
	app.Use(idempotency.New(idempotency.Config{
		KeyHeader:         "Idempotency-Key",
		KeyHeaderValidate: validate,
	}))
	app.Post("/charges", charge)
	log.Fatal(app.Listen("127.0.0.1:"+os.Getenv("PORT"), fiber.ListenConfig{DisableStartupMessage: true}))
}

func authenticate(c fiber.Ctx) error {
	if c.Get("X-Api-Key") == "" {
		return c.Status(401).JSON(fiber.Map{"error": "no API key"})
	}
	return c.Next()
}

// The default asks for exactly 36 characters; the keys of the probe are longer.
func validate(key string) error {
	if len(key) > 255 {
		return fiber.NewError(400, "the key is too long")
	}
	return nil
}

func charge(c fiber.Ctx) error {
	var o order
	if err := c.Bind().JSON(&o); err != nil || o.Cents == nil {
		return c.Status(422).JSON(fiber.Map{"error": "cents is missing"})
	}
	time.Sleep(20 * time.Millisecond)
	id := fmt.Sprintf("ch_%d", total.Add(1))
	c.Location("/charges/" + id)
	header := &c.RequestCtx().Response.Header
	header.Add("Link", fmt.Sprintf(`</charges/%s>; rel="self"`, id))
	header.Add("Link", fmt.Sprintf(`</refunds/%s>; rel="refund"`, id))
	return c.Status(201).JSON(fiber.Map{"id": id, "cents": *o.Cents, "to": o.To})
}
