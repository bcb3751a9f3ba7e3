// SPDX-License-Identifier: Apache-2.0

// A handler made with the Go SDK, for the live tests. It sleeps, and writes its runs to a journal
// in the form of work.py. A payload {"do": "exit"} ends the process, at the first attempt only.
// With {"do": "later"}, the first run asks for a retry in a second, without an attempt.
package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	latchwork "latchwork.example/latchwork.git/sdk/go"
)

var (
	journal   *os.File
	low, high float64
)

func bootUs() int64 {
	const clockBoottime = 7
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano() / 1000
}

func note(what string, m *latchwork.Message, extra string) {
	key := hex.EncodeToString(m.Key)
	if key == "" {
		key = "-"
	}
	fmt.Fprintf(journal, "%s %d %d %s %s %d %d%s\n", what, bootUs(), os.Getppid(), m.ID, key, m.Fence,
		m.Attempt, extra)
}

func firstRun(m *latchwork.Message) bool {
	f, err := os.OpenFile(os.Getenv("LW_TEST_JOURNAL")+strings.ReplaceAll(m.ID, "/", "-"),
		os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		f.Close()
	}
	return err == nil
}

func handle(ctx context.Context, m *latchwork.Message) error {
	var what struct{ Do string }
	note("start", m, "")
	fmt.Println("a print that harms nothing")
	select {
	case <-time.After(time.Duration((low + rand.Float64()*(high-low)) * float64(time.Millisecond))):
	case <-ctx.Done():
		note("end", m, " back")
		return latchwork.Cause(ctx)
	}
	if err := m.JSON(&what); err != nil {
		return err
	}
	if m.Attempt == 1 && what.Do == "exit" {
		os.Exit(3)
	}
	if what.Do == "later" && firstRun(m) {
		note("end", m, " retry")
		return latchwork.Retry("not yet", latchwork.After(time.Second), latchwork.Uncounted())
	}
	note("end", m, " done")
	return nil
}

func main() {
	var err error
	journal, err = os.OpenFile(os.Getenv("LW_TEST_JOURNAL"), os.O_WRONLY|os.O_APPEND|os.O_CREATE,
		0o644)
	if err == nil {
		fmt.Sscanf(os.Getenv("LW_TEST_WORK_MS"), "%f-%f", &low, &high)
		err = latchwork.Run(context.Background(), handle)
	}
	if err != nil {
		latchwork.Log(context.Background()).Error(err.Error())
		os.Exit(1)
	}
}
