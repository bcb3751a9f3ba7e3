CREATE TABLE customers (
    id      text PRIMARY KEY,
    name    text NOT NULL,
    visits  integer CHECK (visits >= 0),
    profile jsonb
);
