// SPDX-License-Identifier: Apache-2.0

// Package latchwork is the SDK for Latchwork handlers in Go:
//
//	func handle(ctx context.Context, m *latchwork.Message) error {
//		var o order
//		if err := m.JSON(&o); err != nil {
//			return err
//		}
//		return store(ctx, o, m.Fence) // nil means: done
//	}
//
//	func main() {
//		if err := latchwork.Run(context.Background(), handle); err != nil {
//			log.Fatal(err)
//		}
//	}
//
// Latchwork starts this program (handler.type "exec"), sends it messages of different keys, up to
// `handler.in_flight` at a time, and expects an answer for each message. Each message has a
// goroutine. If the handler returns nil, the message is done. Retry("why") asks for another
// attempt, Dead("why") makes the message a dead letter, and any other error, or a panic, is a
// retry. The context ends when Latchwork takes the message back, or when the message times out. A
// process that has no other message is killed at the timeout, so a handler that wants to stop
// earlier must use Message.Deadline.
//
// When a program imports this package, answers go over a separate file descriptor, so that printed
// text goes to the log and does not disturb the protocol. The protocol is described in
// doc/reference/exec-protocol.md.
package latchwork

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

const (
	protocol  = 1
	readBytes = 1 << 16
	reasonMax = 4000 // bytes; Latchwork keeps less of a reason
)

// ErrTakenBack says that Latchwork has taken the message back, because its lease is lost or it has
// timed out. Latchwork then ignores the answer. Cause returns this error.
var ErrTakenBack = errors.New("latchwork has taken the message back")

// --- messages ------------------------------------------------------------------------------------

// A Header is a header of the record. A nil value is Kafka's null.
type Header struct {
	Name  string
	Value []byte
}

// A Message is one message, and the lease under which it is handled.
type Message struct {
	ID        string // "topic/partition/offset", the same at every attempt
	Key       []byte // the primary key; nil if the record of a null key has none
	Fence     uint64 // a number that grows with every message of a key, and with every attempt
	Attempt   int    // the number of this attempt; 1 for the first attempt
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time // Kafka's timestamp; zero if it is unknown
	// Deadline is the time at which handler.timeout_ms will have passed. It is zero if there is no
	// limit, or if the time is not known yet, as for the later messages of a batch.
	Deadline time.Time
	Headers  []Header // in order; a name may occur twice
	Payload  []byte   // nil for a tombstone
}

// JSON decodes the payload. If the payload is not JSON, it returns Dead, because another attempt
// would read the same bytes.
func (m *Message) JSON(v any) error {
	if m.Payload == nil {
		return Dead("the payload is null, not JSON")
	}
	if err := json.Unmarshal(m.Payload, v); err != nil {
		return Dead("the payload is not the JSON that is wanted: " + err.Error())
	}
	return nil
}

// Header returns the value of the last header of this name, or nil.
func (m *Message) Header(name string) []byte {
	for i := len(m.Headers) - 1; i >= 0; i-- {
		if m.Headers[i].Name == name {
			return m.Headers[i].Value
		}
	}
	return nil
}

// Traceparent returns the value of the header traceparent (the producer's W3C trace context), or
// "".
func (m *Message) Traceparent() string { return string(m.Header("traceparent")) }

// --- outcomes ------------------------------------------------------------------------------------

type outcome struct {
	word, reason string
	after        *time.Duration // nil: the backoff decides
	uncounted    bool
}

func (o *outcome) Error() string { return o.word + ": " + o.reason }

// RetryOption says when the message of a Retry comes back, or that no attempt counts.
type RetryOption func(*outcome)

// After makes the next attempt come after d, at most an hour, instead of a backoff.
func After(d time.Duration) RetryOption {
	return func(o *outcome) { o.after = &d }
}

// Uncounted makes the attempt that ends with the error count nothing. A message may come back like
// that for retry.max_age_s.
func Uncounted() RetryOption {
	return func(o *outcome) { o.uncounted = true }
}

// Retry returns an error that asks for another attempt, after a backoff. The attempt that ends with
// this error counts. Options change that, as in Retry("busy", After(time.Minute)).
func Retry(reason string, options ...RetryOption) error {
	o := &outcome{word: "retry", reason: reason}
	for _, option := range options {
		option(o)
	}
	if o.after != nil && *o.after < 0 {
		return fmt.Errorf("latchwork: the time in After must not be negative, is %v", *o.after)
	}
	return o
}

// Dead returns an error that makes the message a dead letter, because another attempt would be
// pointless.
func Dead(reason string) error { return &outcome{word: "dead", reason: reason} }

// --- context -------------------------------------------------------------------------------------

type contextKey struct{}

// state is the value that the context of a handler contains.
type state struct {
	message   *Message
	cancel    context.CancelFunc
	mu        sync.Mutex
	takenBack bool
}

func (s *state) takeBack() {
	s.mu.Lock()
	s.takenBack = true
	s.mu.Unlock()
	s.cancel()
}

func stateOf(ctx context.Context) *state {
	s, _ := ctx.Value(contextKey{}).(*state)
	return s
}

// FromContext returns the message that the handler with this context handles, or nil outside of a
// handler. It is useful for log lines and trace contexts.
func FromContext(ctx context.Context) *Message {
	if s := stateOf(ctx); s != nil {
		return s.message
	}
	return nil
}

// Cause returns the reason why the context of a handler has ended: ErrTakenBack,
// context.DeadlineExceeded, or another error of ctx.Err(). It returns nil while the context has not
// ended.
func Cause(ctx context.Context) error {
	if s := stateOf(ctx); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.takenBack {
			return ErrTakenBack
		}
	}
	return ctx.Err()
}

// --- the log -------------------------------------------------------------------------------------

// A Logger writes lines to Latchwork's log, with the identity of the message. Its functions have
// the same form as those of log/slog: a text, then names and values in turn. Never log payloads or
// secrets.
type Logger struct{ prefix string }

// Log returns the logger for the message of the context, or for the program if the context has no
// message.
func Log(ctx context.Context) Logger {
	if m := FromContext(ctx); m != nil {
		return Logger{m.ID + ": "}
	}
	return Logger{}
}

func (l Logger) Debug(text string, args ...any) { l.write("debug", text, args) }
func (l Logger) Info(text string, args ...any)  { l.write("info", text, args) }
func (l Logger) Warn(text string, args ...any)  { l.write("warning", text, args) }
func (l Logger) Error(text string, args ...any) { l.write("error", text, args) }

func (l Logger) write(level, text string, args []any) {
	var b strings.Builder
	b.WriteString(l.prefix + level + ": " + text)
	for i := 0; i < len(args); i += 2 {
		if i+1 < len(args) {
			fmt.Fprintf(&b, " %v=%v", args[i], args[i+1])
		} else {
			fmt.Fprintf(&b, " %v", args[i])
		}
	}
	fmt.Fprintln(os.Stderr, strings.ReplaceAll(b.String(), "\n", " | "))
}

// --- the wire ------------------------------------------------------------------------------------

var requests, answers = openWire()

// openWire returns the files for requests and answers. It writes the hello at once, before the
// program prints anything.
func openWire() (*os.File, *os.File) {
	var in, out uintptr
	fds := os.Getenv("LATCHWORK_FDS")
	os.Unsetenv("LATCHWORK_FDS") // child processes of this program must not use its descriptors
	if n, _ := fmt.Sscanf(fds, "%d,%d", &in, &out); n == 2 {
		r, w := os.NewFile(in, "requests"), os.NewFile(out, "answers")
		if r != nil && w != nil {
			if _, err := fmt.Fprintf(w, "{\"hello\":%d}\n", protocol); err == nil {
				return r, w
			}
		}
	}
	return os.Stdin, os.Stdout
}

// text is a value of a request: null, text, or base64 if the bytes are not UTF-8.
func text(plain *string, encoded *string) ([]byte, error) {
	if encoded != nil {
		return base64.StdEncoding.DecodeString(*encoded)
	}
	if plain == nil {
		return nil, nil
	}
	return []byte(*plain), nil
}

// headerPart is the name or the value of a header: text, null, or {"base64":"…"}.
type headerPart struct{ bytes []byte }

func (p *headerPart) UnmarshalJSON(data []byte) (err error) {
	var encoded struct{ Base64 string }
	if data[0] != '{' {
		var plain *string
		if err = json.Unmarshal(data, &plain); err == nil {
			p.bytes, err = text(plain, nil)
		}
		return err
	}
	if err = json.Unmarshal(data, &encoded); err == nil {
		p.bytes, err = base64.StdEncoding.DecodeString(encoded.Base64)
	}
	return err
}

type wireMessage struct {
	ID            string          `json:"id"`
	Key           *string         `json:"key"`
	KeyBase64     *string         `json:"key_base64"`
	Fence         uint64          `json:"fence"`
	Attempt       int             `json:"attempt"`
	Topic         string          `json:"topic"`
	Partition     int32           `json:"partition"`
	Offset        int64           `json:"offset"`
	TimestampMs   *int64          `json:"timestamp_ms"`
	DeadlineMs    *int64          `json:"deadline_ms"`
	Headers       [][2]headerPart `json:"headers"`
	Payload       *string         `json:"payload"`
	PayloadBase64 *string         `json:"payload_base64"`
}

type wireRequest struct {
	wireMessage
	Cancel *string       `json:"cancel"`
	Batch  []wireMessage `json:"batch"`
}

func (w *wireMessage) message() (*Message, error) {
	m := &Message{ID: w.ID, Fence: w.Fence, Attempt: w.Attempt, Topic: w.Topic,
		Partition: w.Partition, Offset: w.Offset}
	var err error
	if m.Key, err = text(w.Key, w.KeyBase64); err != nil {
		return nil, err
	}
	if m.Payload, err = text(w.Payload, w.PayloadBase64); err != nil {
		return nil, err
	}
	if w.TimestampMs != nil {
		m.Timestamp = time.UnixMilli(*w.TimestampMs)
	}
	if w.DeadlineMs != nil {
		m.Deadline = time.UnixMilli(*w.DeadlineMs)
	}
	for _, h := range w.Headers {
		m.Headers = append(m.Headers, Header{string(h[0].bytes), h[1].bytes})
	}
	return m, nil
}

// parse returns the messages of a request, which all have the same key, or the identity of the
// message that a cancellation names.
func parse(line []byte) (messages []*Message, cancel string, err error) {
	var r wireRequest
	if err = json.Unmarshal(line, &r); err != nil {
		return nil, "", err
	}
	if r.Cancel != nil {
		return nil, *r.Cancel, nil
	}
	if r.Batch == nil {
		r.Batch = []wireMessage{r.wireMessage}
	}
	for i := range r.Batch {
		m, err := r.Batch[i].message()
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", r.Batch[i].ID, err)
		}
		messages = append(messages, m)
	}
	return messages, "", nil
}

// errExited is the outcome of a message whose handler ended its goroutine.
var errExited = errors.New("the handler called runtime.Goexit")

// answer returns the answer line for a message. Marshal replaces bytes that are not UTF-8.
func answer(m *Message, err error) []byte {
	a := struct {
		ID      string `json:"id"`
		Attempt int    `json:"attempt,omitempty"`
		Outcome string `json:"outcome"`
		Reason  string `json:"reason,omitempty"`
		AfterMs *int64 `json:"after_ms,omitempty"`
		Counts  *bool  `json:"counts,omitempty"`
	}{ID: m.ID, Attempt: m.Attempt, Outcome: "done"}
	var o *outcome
	switch {
	case err == nil:
	case errors.As(err, &o):
		a.Outcome, a.Reason = o.word, o.reason
		if o.after != nil { // a longer time is shortened
			ms := int64(time.Hour / time.Millisecond)
			if *o.after < time.Hour {
				ms = int64((*o.after + time.Millisecond - 1) / time.Millisecond)
			}
			a.AfterMs = &ms
		}
		if o.uncounted {
			a.Counts = new(bool)
		}
	default:
		a.Outcome, a.Reason = "retry", err.Error()
	}
	if len(a.Reason) > reasonMax {
		a.Reason = a.Reason[:reasonMax]
	}
	line, _ := json.Marshal(a) // cannot fail with these types
	return append(line, '\n')
}

// writer writes answers. Answers that are added during a write are written together by the next
// write.
type writer struct {
	mu      sync.Mutex
	pending bytes.Buffer
	busy    bool
	err     error
	idle    *sync.Cond
}

func (w *writer) add(line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending.Write(line)
	if !w.busy {
		w.busy = true
		go w.flush()
	}
}

func (w *writer) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.pending.Len() > 0 && w.err == nil {
		data := append([]byte(nil), w.pending.Bytes()...)
		w.pending.Reset()
		w.mu.Unlock()
		_, err := answers.Write(data)
		w.mu.Lock()
		w.err = err
	}
	w.busy = false
	w.idle.Broadcast()
}

// wait returns when all answers have been written.
func (w *writer) wait() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.busy {
		w.idle.Wait()
	}
	return w.err
}

// --- running -------------------------------------------------------------------------------------

// server is the state of one call of Run or RunBatch.
type server struct {
	batch bool // true if all messages of a batch share a context
	out   writer
	wait  sync.WaitGroup
	mu    sync.Mutex
	open  map[string]*state
}

// Run calls the handler for each message, until Latchwork closes the pipe of requests. It returns
// when the messages in progress are done. If ctx ends earlier, the contexts of the handlers end
// too, and Run returns the error of ctx when the handlers have returned.
func Run(ctx context.Context, handler func(ctx context.Context, m *Message) error) error {
	if handler == nil {
		return errors.New("latchwork: the handler is nil")
	}
	s := newServer(false)
	one := func(ctx context.Context, m *Message, st *state) error {
		r := result{err: errExited}
		defer func() { // also if the handler ends its goroutine
			s.out.add(answer(m, r.err))
			st.cancel()
		}()
		r = guard(ctx, func() (int, error) { return 0, handler(ctx, m) })
		return r.err
	}
	return s.run(ctx, func(ms []*Message, states []*state, contexts []context.Context) {
		for i, m := range ms {
			if one(contexts[i], m, states[i]) != nil {
				return
			}
		}
	})
}

// RunBatch calls the handler with all messages of a request. If `handler.batch` is above 1, these
// may be several messages of one key, in order. The handler returns the number of messages that are
// done, counted from the first one, and an error if not all messages are done. The error is the
// outcome of the next message, and Latchwork sends the messages behind it again later. A nil error
// means that all messages are done. The context ends as soon as one of the messages is taken
// back.
func RunBatch(ctx context.Context,
	handler func(ctx context.Context, ms []*Message) (done int, err error)) error {
	if handler == nil {
		return errors.New("latchwork: the handler is nil")
	}
	s := newServer(true)
	return s.run(ctx, func(ms []*Message, states []*state, contexts []context.Context) {
		all, r := contexts[0], result{err: errExited}
		defer func() { // also if the handler ends its goroutine
			if r.err == nil {
				r.done = len(ms)
			} else if r.done < 0 || r.done >= len(ms) {
				r.done = 0
			}
			var lines []byte
			for _, m := range ms[:r.done] {
				lines = append(lines, answer(m, nil)...)
			}
			if r.done < len(ms) {
				lines = append(lines, answer(ms[r.done], r.err)...)
			}
			s.out.add(lines)
		}()
		r = guard(all, func() (int, error) { return handler(all, ms) })
	})
}

func newServer(batch bool) *server {
	s := &server{batch: batch, open: map[string]*state{}}
	s.out.idle = sync.NewCond(&s.out.mu)
	return s
}

type result struct {
	done int
	err  error
}

// guard calls a handler, and turns a panic into an error. It logs an error that is neither Retry
// nor Dead.
func guard(ctx context.Context, call func() (int, error)) (r result) {
	defer func() {
		if p := recover(); p != nil {
			r = result{0, fmt.Errorf("panic: %v", p)}
			Log(ctx).Error(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	if cause := Cause(ctx); cause != nil {
		return result{0, cause}
	}
	done, err := call()
	var o *outcome
	if err == nil || errors.As(err, &o) {
		return result{done, err}
	}
	if cause := Cause(ctx); cause != nil {
		return result{done, cause}
	}
	Log(ctx).Error(err.Error())
	return result{done, err}
}

// contexts makes a context for each message, or one context for a whole batch. It registers the
// contexts in s.open, so that a cancellation finds them.
func (s *server) contexts(ctx context.Context, ms []*Message) ([]*state, []context.Context) {
	states, contexts := make([]*state, len(ms)), make([]context.Context, len(ms))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range ms {
		if s.batch && i > 0 {
			states[i], contexts[i] = states[0], contexts[0]
			s.open[m.ID] = states[0]
			continue
		}
		st := &state{message: m}
		own := context.WithValue(ctx, contextKey{}, st)
		if m.Deadline.IsZero() {
			own, st.cancel = context.WithCancel(own)
		} else {
			own, st.cancel = context.WithDeadline(own, m.Deadline)
		}
		states[i], contexts[i] = st, own
		s.open[m.ID] = st
	}
	return states, contexts
}

func (s *server) begin(ctx context.Context, ms []*Message,
	handle func([]*Message, []*state, []context.Context)) {
	states, contexts := s.contexts(ctx, ms)
	s.wait.Add(1)
	go func() {
		defer s.wait.Done()
		defer func() {
			s.mu.Lock()
			for i, m := range ms {
				if s.open[m.ID] == states[i] {
					delete(s.open, m.ID)
				}
			}
			s.mu.Unlock()
			for _, st := range states {
				st.cancel()
			}
		}()
		handle(ms, states, contexts)
	}()
}

func (s *server) cancel(id string) {
	s.mu.Lock()
	st := s.open[id]
	s.mu.Unlock()
	if st != nil {
		st.takeBack()
	}
}

// readLines sends each line of the requests to the channel lines, and then the error that ended the
// input to the channel end; nil means the normal end.
func readLines(lines chan<- []byte, end chan<- error) {
	r := bufio.NewReaderSize(requests, readBytes)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			end <- err
			return
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines <- line
		}
	}
}

func (s *server) run(ctx context.Context,
	handle func([]*Message, []*state, []context.Context)) error {
	if answers == os.Stdout {
		os.Stdout = os.Stderr // text that the handler prints must not mix with the answers
	}
	lines, end := make(chan []byte, 64), make(chan error, 1)
	go readLines(lines, end)
	err := s.serve(ctx, lines, end, handle)
	s.wait.Wait()
	if written := s.out.wait(); err == nil {
		err = written
	}
	return err
}

func (s *server) serve(ctx context.Context, lines <-chan []byte, end <-chan error,
	handle func([]*Message, []*state, []context.Context)) error {
	for {
		select {
		case line := <-lines:
			if err := s.take(ctx, line, handle); err != nil {
				return err
			}
		case err := <-end:
			for { // handle the lines that were read before the end
				select {
				case line := <-lines:
					if err := s.take(ctx, line, handle); err != nil {
						return err
					}
				default:
					return err
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *server) take(ctx context.Context, line []byte,
	handle func([]*Message, []*state, []context.Context)) error {
	ms, cancel, err := parse(line)
	switch {
	case err != nil:
		return fmt.Errorf("latchwork: malformed request: %w", err)
	case ms == nil:
		s.cancel(cancel)
	default:
		s.begin(ctx, ms, handle)
	}
	return nil
}
