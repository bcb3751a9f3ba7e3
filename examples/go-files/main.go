// SPDX-License-Identifier: Apache-2.0

// Keeps a file for each customer with the sum of the customer's orders. The program reads, changes
// and writes the file without any lock, because Latchwork runs only one message of a customer at a
// time, on all machines that share the folder. The fence in the file stops a process that was
// frozen until its lease had ended. The identities in the file make a second delivery of a message
// harmless.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"path/filepath"

	latchwork "latchwork.example/latchwork.git/sdk/go"
)

// Number of identities kept per customer. Only the last few messages of a key can be delivered
// again.
const remembered = 100

type order struct {
	Customer string `json:"customer"`
	Amount   *int64 `json:"amount"`
}

type account struct {
	Fence  uint64   `json:"fence"`
	Amount int64    `json:"amount"`
	Seen   []string `json:"seen"`
}

func (a *account) has(id string) bool {
	for _, seen := range a.Seen {
		if seen == id {
			return true
		}
	}
	return false
}

func (a *account) add(m *latchwork.Message, amount int64) {
	a.Fence, a.Amount = m.Fence, a.Amount+amount
	a.Seen = append(a.Seen, m.ID)
	if len(a.Seen) > remembered {
		a.Seen = a.Seen[len(a.Seen)-remembered:]
	}
}

func read(path string) (a account, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

func write(path string, a account) error {
	text, err := json.Marshal(a)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

func handle(ctx context.Context, m *latchwork.Message) error {
	var o order
	if err := m.JSON(&o); err != nil {
		return err
	}
	if o.Amount == nil || o.Customer == "" || filepath.Base(o.Customer) != o.Customer {
		return latchwork.Dead("the order has no amount, or no customer that can be the name of a file")
	}
	path := filepath.Join("accounts", o.Customer+".json")
	a, err := read(path)
	switch {
	case err != nil:
		return err
	case a.has(m.ID):
		return nil
	case m.Fence < a.Fence:
		return latchwork.Retry("a stale fence")
	case ctx.Err() != nil:
		return ctx.Err()
	}
	a.add(m, *o.Amount)
	return write(path, a)
}

func main() {
	if err := os.MkdirAll("accounts", 0o755); err != nil {
		log.Fatal(err)
	}
	if err := latchwork.Run(context.Background(), handle); err != nil {
		log.Fatal(err)
	}
}
