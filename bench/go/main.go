// SPDX-License-Identifier: Apache-2.0

// A handler for the benchmark, made with the Go SDK. The argument is the work per message in µs. If
// it is 0, the handler does nothing; otherwise the handler sleeps for that time.
package main

import (
	"context"
	"log"
	"os"
	"strconv"
	"time"

	latchwork "latchwork.example/latchwork.git/sdk/go"
)

func main() {
	us, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	work := time.Duration(us) * time.Microsecond
	handle := func(_ context.Context, _ *latchwork.Message) error {
		if work > 0 {
			time.Sleep(work)
		}
		return nil
	}
	if err := latchwork.Run(context.Background(), handle); err != nil {
		log.Fatal(err)
	}
}
