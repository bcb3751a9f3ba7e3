module latchwork

go 1.19
