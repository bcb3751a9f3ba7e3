module bench

go 1.19

require latchwork v0.0.0

replace latchwork => ../../sdk/go
