module bench

go 1.19

require latchwork.example/latchwork.git/sdk/go v0.0.0

replace latchwork.example/latchwork.git/sdk/go => ../../sdk/go
