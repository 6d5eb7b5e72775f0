// Works jobs with River as fast as it can.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type benchArgs struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

func (benchArgs) Kind() string { return "bench" }

type worker struct {
	river.WorkerDefaults[benchArgs]
	handled atomic.Int64
	number  int64
	ended   chan time.Time
}

func (w *worker) Work(context.Context, *river.Job[benchArgs]) error {
	if w.handled.Add(1) == w.number {
		w.ended <- time.Now()
	}
	return nil
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func fill(ctx context.Context, client *river.Client[pgx.Tx], number int) {
	pad := strings.Repeat("x", 80)
	for done := 0; done < number; done += 1000 {
		var jobs []river.InsertManyParams
		for n := done; n < min(done+1000, number); n++ {
			jobs = append(jobs, river.InsertManyParams{Args: benchArgs{N: n, Pad: pad}})
		}
		_, err := client.InsertManyFast(ctx, jobs)
		must(err)
	}
	fmt.Println("filled")
}

func drain(ctx context.Context, pool *pgxpool.Pool, number int) {
	work := &worker{number: int64(number), ended: make(chan time.Time, 1)}
	workers := river.NewWorkers()
	river.AddWorker(workers, work)
	// The numbers of River's own benchmark: many workers, and hardly a pause between two fetches.
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            slog.New(slog.DiscardHandler),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Workers:           workers,
	})
	must(err)
	begun := time.Now()
	must(client.Start(ctx))
	ended := <-work.ended
	must(client.Stop(ctx))
	fmt.Printf("drained %f %d\n", ended.Sub(begun).Seconds(), work.handled.Load())
}

func main() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	must(err)
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	must(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	must(err)
	inserter, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger: slog.New(slog.DiscardHandler),
	})
	must(err)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		number, err := strconv.Atoi(rest)
		must(err)
		switch what {
		case "fill":
			fill(ctx, inserter, number)
		case "drain":
			drain(ctx, pool, number)
		}
	}
}
