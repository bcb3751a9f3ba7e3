module latchwork.example/latchwork.git/sdk/go

go 1.19
