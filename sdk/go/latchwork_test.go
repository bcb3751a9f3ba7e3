// SPDX-License-Identifier: Apache-2.0

// Tests of the Go SDK. Some use the protocol's test vectors. The others start handlers as
// processes, and do what Latchwork would do. The test program itself is the handler: TestMain runs
// the handler that LATCHWORK_TEST_HANDLER names.
package latchwork

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const vectors = "../../tests/vectors/exec/"

// --- handlers ------------------------------------------------------------------------------------

func outcomes(ctx context.Context, m *Message) error {
	var what struct{ Do string }
	if err := m.JSON(&what); err != nil {
		return err
	}
	fmt.Println("stray", string(m.Key))
	switch what.Do {
	case "retry":
		return Retry("later")
	case "dead":
		return fmt.Errorf("wrapped: %w", Dead("never"))
	case "fail":
		return errors.New("no luck")
	case "panic":
		panic("oh")
	case "exit":
		runtime.Goexit()
	}
	if FromContext(ctx) != m || m.Traceparent() != "00-aa-bb-01" || Cause(ctx) != nil {
		return Dead("context")
	}
	Log(ctx).Info("two\nlines", "n", 7)
	return nil
}

var together sync.WaitGroup

func waitForAll(context.Context, *Message) error {
	together.Done()
	together.Wait()
	return nil
}

func slow(ctx context.Context, m *Message) error {
	if string(m.Key) == "fast" {
		return nil
	}
	<-ctx.Done()
	if errors.Is(Cause(ctx), context.DeadlineExceeded) {
		return Dead("late")
	}
	return ctx.Err()
}

var next int64

func inOrder(_ context.Context, m *Message) error {
	if m.Offset != next {
		return Dead("order")
	}
	if next++; m.Offset == 2 {
		return Retry("enough")
	}
	return nil
}

func batches(ctx context.Context, ms []*Message) (int, error) {
	if string(ms[0].Key) == "wait" {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if len(ms) > 3 {
		return 3, Dead("long")
	}
	return 0, nil
}

func pause(context.Context, *Message) error { time.Sleep(300 * time.Millisecond); return nil }

func environment(context.Context, *Message) error { return Dead(os.Getenv("LATCHWORK_FDS") + "|") }

func TestMain(m *testing.M) {
	handlers := map[string]func(context.Context, *Message) error{"outcomes": outcomes,
		"together": waitForAll, "slow": slow,
		"order": inOrder, "pause": pause, "environment": environment}
	name := os.Getenv("LATCHWORK_TEST_HANDLER")
	if name == "" {
		os.Exit(m.Run())
	}
	together.Add(50)
	err := errors.New("no such handler")
	if handler, ok := handlers[name]; ok {
		err = Run(context.Background(), handler)
	} else if name == "batches" {
		err = RunBatch(context.Background(), batches)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// --- vectors -------------------------------------------------------------------------------------

func eachVector(t *testing.T, name string, judge func(t *testing.T, vector json.RawMessage)) {
	f, err := os.Open(vectors + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for r := bufio.NewReader(f); ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		judge(t, line)
	}
	if n < 4 {
		t.Fatalf("%s has only %d vectors", name, n)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is %#v, expected %#v", what, got, want)
	}
}

func TestRequests(t *testing.T) {
	type message struct {
		ID          string
		Key         headerPart
		Fence       uint64
		Attempt     int
		Topic       string
		Partition   int32
		Offset      int64
		TimestampMs *int64 `json:"timestamp_ms"`
		DeadlineMs  *int64 `json:"deadline_ms"`
		Headers     [][2]headerPart
		Payload     headerPart
	}
	instant := func(ms *int64) time.Time {
		if ms == nil {
			return time.Time{}
		}
		return time.UnixMilli(*ms)
	}
	eachVector(t, "requests.jsonl", func(t *testing.T, vector json.RawMessage) {
		var v struct {
			Line     string
			Messages []message
		}
		if err := json.Unmarshal(vector, &v); err != nil {
			t.Fatal(err)
		}
		got, cancel, err := parse([]byte(v.Line))
		if err != nil || cancel != "" || len(got) != len(v.Messages) {
			t.Fatalf("%s: %v, %q, %d messages", v.Line, err, cancel, len(got))
		}
		for i, want := range v.Messages {
			m := Message{want.ID, want.Key.bytes, want.Fence, want.Attempt, want.Topic, want.Partition,
				want.Offset, instant(want.TimestampMs),
				instant(want.DeadlineMs), nil, want.Payload.bytes}
			for _, h := range want.Headers {
				m.Headers = append(m.Headers, Header{string(h[0].bytes), h[1].bytes})
			}
			same(t, v.Line, *got[i], m)
		}
	})
}

func TestAnswers(t *testing.T) {
	forms := map[string]bool{}
	form := func(outcome string, reason *string) string { return fmt.Sprint(outcome, reason != nil) }
	type said struct {
		ID, Outcome string
		Reason      *string
	}
	eachVector(t, "answers.jsonl", func(t *testing.T, vector json.RawMessage) {
		var v struct{ Answers []said }
		if err := json.Unmarshal(vector, &v); err != nil {
			t.Fatal(err)
		}
		for _, a := range v.Answers {
			forms[form(a.Outcome, a.Reason)] = true
		}
	})
	for _, err := range []error{nil, Retry("no time"),
		Retry("no time", After(time.Minute), Uncounted()), Dead("no use"), errors.New("é\n")} {
		var a said
		if e := json.Unmarshal(answer(&Message{ID: "t/0/1", Attempt: 1}, err), &a); e != nil ||
			!forms[form(a.Outcome, a.Reason)] || a.ID != "t/0/1" {
			t.Errorf("%v: %v %v", err, a, e)
		}
	}
	m := &Message{ID: "t/0/1", Attempt: 2}
	same(t, "done", string(answer(m, nil)),
		"{\"id\":\"t/0/1\",\"attempt\":2,\"outcome\":\"done\"}\n")
	same(t, "bytes", string(answer(m, Dead("\xed\xa0\xbd"))), "{\"id\":\"t/0/1\",\"attempt\":2,"+
		"\"outcome\":\"dead\",\"reason\":\"\\ufffd\\ufffd\\ufffd\"}\n")
	if n := len(answer(m, Dead(strings.Repeat("x", 3000000)))); n > reasonMax+100 {
		t.Errorf("an answer of %d bytes", n)
	}
}

func TestRetrySaysWhen(t *testing.T) {
	m := &Message{ID: "t/0/1", Attempt: 1}
	said := func(options ...RetryOption) string {
		return strings.TrimPrefix(string(answer(m, Retry("r", options...))),
			"{\"id\":\"t/0/1\",\"attempt\":1,\"outcome\":\"retry\",\"reason\":\"r\"")
	}
	same(t, "nothing", said(), "}\n")
	same(t, "after", said(After(time.Minute)), ",\"after_ms\":60000}\n")
	same(t, "at once", said(After(0), Uncounted()), ",\"after_ms\":0,\"counts\":false}\n")
	same(t, "up", said(After(time.Microsecond)), ",\"after_ms\":1}\n")
	same(t, "an hour", said(After(1<<63-1)), ",\"after_ms\":3600000}\n")
	var o *outcome
	if err := Retry("r", After(-time.Second)); errors.As(err, &o) ||
		!strings.Contains(err.Error(), "must not be negative") {
		t.Error(err)
	}
}

// --- processes -----------------------------------------------------------------------------------

type process struct {
	t            *testing.T
	cmd          *exec.Cmd
	in           io.WriteCloser
	out          *bufio.Reader
	stdout, logs strings.Builder
}

// start runs this test program as a handler. If side is true, the process may use descriptors 3 and
// 4 for the protocol.
func start(t *testing.T, handler string, side bool) *process {
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), "LATCHWORK_TEST_HANDLER="+handler)
	p.cmd.Stderr = &p.logs
	inR, inW, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if side {
		p.cmd.Env = append(p.cmd.Env, "LATCHWORK_FDS=3,4")
		p.cmd.ExtraFiles = []*os.File{inR, outW}
		p.cmd.Stdout = &p.stdout
	} else {
		p.cmd.Stdin, p.cmd.Stdout = inR, outW
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	timer := time.AfterFunc(30*time.Second, func() { p.cmd.Process.Kill() })
	t.Cleanup(func() { timer.Stop(); p.cmd.Process.Kill() })
	p.in, p.out = inW, bufio.NewReader(outR)
	if side {
		same(t, "hello", p.line(), "{\"hello\":1}")
	}
	return p
}

func (p *process) send(requests ...any) {
	for _, r := range requests {
		line, err := json.Marshal(r)
		if err != nil {
			p.t.Fatal(err)
		}
		if _, err := p.in.Write(append(line, '\n')); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("no answer: %v; log: %s", err, p.logs.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// answers waits for n answers, and returns a map from identity to "outcome reason".
func (p *process) answers(n int) map[string]string {
	p.t.Helper()
	all := map[string]string{}
	for i := 0; i < n; i++ {
		var a struct{ ID, Outcome, Reason string }
		if err := json.Unmarshal([]byte(p.line()), &a); err != nil {
			p.t.Fatal(err)
		}
		all[a.ID] = strings.TrimSpace(a.Outcome + " " + a.Reason)
	}
	return all
}

// end closes the input, and expects that no more answers come and that the exit status is 0.
func (p *process) end() {
	p.t.Helper()
	p.in.Close()
	rest, err := io.ReadAll(p.out)
	if len(rest) > 0 || err != nil {
		p.t.Errorf("more answers: %s %v", rest, err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v; log: %s", err, p.logs.String())
	}
}

type object = map[string]any

func request(id, key string, more object) object {
	var offset int64
	fmt.Sscanf(id, "t/0/%d", &offset)
	r := object{"id": id, "key": key, "fence": 7, "attempt": 1, "topic": "t", "partition": 0,
		"offset": offset, "timestamp_ms": 1,
		"headers": [][2]string{}, "payload": "{}"}
	for name, v := range more {
		r[name] = v
	}
	return r
}

func batch(n int, key string) object {
	var all []object
	for i := 0; i < n; i++ {
		all = append(all, request(fmt.Sprintf("t/0/%d", i), key, nil))
	}
	return object{"batch": all}
}

func testOutcomes(t *testing.T, side bool) {
	p := start(t, "outcomes", side)
	payloads := []any{`{"do":"go"}`, `{"do":"retry"}`, `{"do":"dead"}`, `{"do":"fail"}`,
		`{"do":"panic"}`, nil, `{"do":"exit"}`}
	for i, payload := range payloads {
		headers := [][2]string{{"traceparent", "00-aa-bb-01"}}
		p.send(request(fmt.Sprintf("t/0/%d", i), fmt.Sprint("k", i),
			object{"payload": payload, "headers": headers}))
	}
	same(t, "answers", p.answers(7), map[string]string{"t/0/0": "done", "t/0/1": "retry later",
		"t/0/2": "dead never", "t/0/3": "retry no luck",
		"t/0/4": "retry panic: oh", "t/0/5": "dead the payload is null, not JSON",
		"t/0/6": "retry " + errExited.Error()})
	p.end()
	log, printed := p.logs.String(), p.stdout.String()
	if !side {
		printed = log
	}
	same(t, "stray prints", strings.Count(printed, "stray"), 6)
	for _, want := range []string{"t/0/0: info: two | lines n=7\n", "t/0/3: error: no luck\n",
		"t/0/4: error: panic: oh | "} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in the log: %s", want, log)
		}
	}
}

func TestOutcomes(t *testing.T)                 { testOutcomes(t, true) }
func TestOutcomesOnStdinAndStdout(t *testing.T) { testOutcomes(t, false) }

func TestManyAtOnce(t *testing.T) {
	p := start(t, "together", true)
	for i := 0; i < 50; i++ {
		p.send(request(fmt.Sprintf("t/0/%d", i), fmt.Sprint("k", i), nil))
	}
	same(t, "number of answers", len(p.answers(50)), 50)
	p.end()
}

func TestCancellation(t *testing.T) {
	p := start(t, "slow", true)
	soon := time.Now().Add(200 * time.Millisecond).UnixMilli()
	p.send(request("t/0/0", "slow", nil), request("t/0/1", "fast", nil),
		request("t/0/2", "slow too", object{"deadline_ms": soon}))
	same(t, "the fast one", p.answers(1), map[string]string{"t/0/1": "done"})
	same(t, "the late one", p.answers(1), map[string]string{"t/0/2": "dead late"})
	p.send(object{"cancel": "t/0/0"}, object{"cancel": "t/0/99"})
	same(t, "the cancelled one", p.answers(1),
		map[string]string{"t/0/0": "retry " + ErrTakenBack.Error()})
	p.end()
	same(t, "the log", p.logs.String(), "")
}

func TestABatchEndsWithTheFirstThatIsNotDone(t *testing.T) {
	p := start(t, "order", true)
	p.send(batch(5, "k"))
	same(t, "answers", p.answers(3),
		map[string]string{"t/0/0": "done", "t/0/1": "done", "t/0/2": "retry enough"})
	p.end()
}

func TestAHandlerOfBatches(t *testing.T) {
	p := start(t, "batches", true)
	p.send(batch(2, "k"))
	same(t, "two", p.answers(2), map[string]string{"t/0/0": "done", "t/0/1": "done"})
	p.send(batch(5, "k"))
	same(t, "five", p.answers(4), map[string]string{"t/0/0": "done", "t/0/1": "done", "t/0/2": "done",
		"t/0/3": "dead long"})
	p.send(batch(2, "wait"))
	time.Sleep(50 * time.Millisecond)
	p.send(object{"cancel": "t/0/0"})
	same(t, "cancelled", p.answers(1), map[string]string{"t/0/0": "retry " + ErrTakenBack.Error()})
	p.end()
}

func TestTheEndWaitsForWhatIsUnderWay(t *testing.T) {
	p := start(t, "pause", true)
	p.send(request("t/0/0", "k", nil))
	p.in.Close()
	same(t, "answer", p.answers(1), map[string]string{"t/0/0": "done"})
	p.end()
}

func TestTheVariableIsNotInherited(t *testing.T) {
	p := start(t, "environment", true)
	payload := base64.StdEncoding.EncodeToString(make([]byte, 2<<20))
	p.send(request("t/0/0", "k", object{"payload_base64": payload}))
	same(t, "answer", p.answers(1), map[string]string{"t/0/0": "dead |"})
	p.end()
}

func TestARequestThatIsNotUnderstood(t *testing.T) {
	p := start(t, "pause", true)
	fmt.Fprintln(p.in, "{")
	if err := p.cmd.Wait(); err == nil || !strings.Contains(p.logs.String(), "malformed request") {
		t.Errorf("%v: %s", err, p.logs.String())
	}
}

// A Go module that contains a copy of this folder must build without any download.
func TestAsAModule(t *testing.T) {
	dir := t.TempDir()
	source, err := os.ReadFile("latchwork.go")
	if err != nil {
		t.Fatal(err)
	}
	here, _ := os.Getwd()
	files := map[string]string{
		"go.mod":  "module user\n\ngo 1.19\n\nrequire latchwork.example/latchwork.git/sdk/go v0.0.0\n\nreplace latchwork.example/latchwork.git/sdk/go => " + here + "\n",
		"main.go": "package main\n\nimport (\n\t\"context\"\n\tlatchwork \"latchwork.example/latchwork.git/sdk/go\"\n\tcopied \"user/copied\"\n)\n\nfunc main() {\n\t_ = latchwork.Run(context.Background(), nil)\n\t_ = copied.Run(context.Background(), nil)\n}\n",
	}
	os.Mkdir(dir+"/copied", 0o755)
	files["copied/latchwork.go"] = string(source)
	for name, text := range files {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "vet", "./...")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
