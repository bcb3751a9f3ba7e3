/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parser of command lines (cli/options.h): every kind of value, subcommands and plain
 * words, and random command lines. */
#include "cli/commands.h"
#include "ops/time.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { A = 1, B = 2, LIST_MAX = 2, GO_ON = -1 };

struct values {
    struct cli_args cli;
    bool flag;
    const char *text, *word, *list[LIST_MAX];
    size_t n_list;
    int64_t number, duration;
    double rate;
};

#define AT(field) offsetof(struct values, field)
static const struct cli_option options[] = {
    CLI_CONFIG_OPTION,
    CLI_SET_OPTION,
    {.name = "flag", .brief = 'f', .kind = CLI_FLAG, .help = "h", .at = AT(flag)},
    {.name = "text",
     .brief = 't',
     .kind = CLI_TEXT,
     .metavar = "TEXT",
     .help = "h",
     .at = AT(text)},
    {.name = "word",
     .kind = CLI_WORD,
     .metavar = "one|three|on",
     .help = "h",
     .verbs = A,
     .at = AT(word)},
    {.name = "list",
     .kind = CLI_LIST,
     .metavar = "X",
     .help = "h",
     .at = AT(list),
     .count = AT(n_list),
     .max = LIST_MAX},
    {.name = "number",
     .kind = CLI_NUMBER,
     .metavar = "N",
     .help = "h",
     .at = AT(number),
     .initial = -1,
     .min = 0,
     .max = 9},
    {.name = "duration",
     .kind = CLI_DURATION,
     .metavar = "TIME",
     .help = "h",
     .at = AT(duration),
     .initial = 7,
     .min = 100,
     .max = 3600000},
    {.name = "rate", .kind = CLI_RATE, .metavar = "N", .help = "h", .at = AT(rate)},
    {.name = "short",
     .kind = CLI_SET,
     .metavar = "N",
     .help = "h",
     .at = AT(cli.set),
     .count = AT(cli.n_set),
     .path = "a.b"},
    {0},
};
static const struct cli_verb verbs[] = {
    {.name = "ay", .bit = A, .words = "KEY [MORE]", .min_words = 1, .max_words = 2, .help = "h"},
    {.name = "bee", .bit = B, .words = "[X...]", .max_words = -1, .help = "h"},
    {.name = "exec",
     .bit = 4,
     .words = "KEY",
     .min_words = 1,
     .max_words = 1,
     .tail = true,
     .help = "h"},
};
static const struct cli_command command = {.name = "thing",
                                           .about = "About it.",
                                           .verbs = verbs,
                                           .n_verbs = 3,
                                           .options = options,
                                           .args_size = sizeof(struct values)};

/* Buffers for the command line under test: its text, and what was printed on stderr. */
static char words[4096], said[8192];
static char *argv[64]; /* words of the command line, to which the parsed values point */

static int parse(const char *line, struct values *v) {
    int argc = 1;
    memset(argv, 0, sizeof argv);
    argv[0] = (char *)(uintptr_t) "thing";
    snprintf(words, sizeof words, "%s", line);
    for (char *w = strtok(words, " "); w && argc < 63; w = strtok(NULL, " ")) argv[argc++] = w;
    FILE *real = stderr, *tmp = tmpfile();
    assert_non_null(tmp);
    stderr = tmp;
    *v = (struct values){0};
    int status = cli_parse(&command, argc, argv, &v->cli);
    stderr = real;
    rewind(tmp);
    said[fread(said, 1, sizeof said - 1, tmp)] = '\0';
    fclose(tmp);
    assert_true(status == GO_ON || status == 0 || status == CLI_USAGE);
    /* stderr must have an explanation if and only if the usage was wrong */
    assert_int_equal(status == CLI_USAGE, said[0] != '\0');
    return status;
}

static void test_values(void **state) {
    (void)state;
    struct values v;
    assert_int_equal(parse("-t x --word three ay k --list 1 --list=2 --number 9 --duration 1h "
                           "--rate 2.5/s -f m --set a=1 --short 5 -c F",
                           &v),
                     GO_ON);
    assert_string_equal(v.text, "x");
    assert_string_equal(v.word, "three");
    assert_int_equal(v.n_list, 2);
    assert_string_equal(v.list[1], "2");
    assert_int_equal(v.number, 9);
    assert_int_equal(v.duration, 3600000);
    assert_true(v.rate > 2.4 && v.rate < 2.6 && v.flag);
    assert_int_equal(v.cli.n_set, 2);
    assert_string_equal(v.cli.set[1].path, "a.b");
    assert_string_equal(v.cli.set[1].value, "5");
    assert_string_equal(v.cli.config, "F");
    assert_ptr_equal(v.cli.verb, &verbs[0]);
    assert_int_equal(v.cli.n_words, 2);
    assert_string_equal(v.cli.words[1], "m");
    assert_int_equal(parse("bee -c F", &v), GO_ON);
    assert_int_equal(v.number, -1);
    assert_int_equal(v.duration, 7);
    assert_int_equal(parse("-c F exec k -- cmd --flag -c", &v), GO_ON);
    assert_string_equal(v.cli.tail[1], "--flag");
    assert_false(v.flag);
}

static void test_misuse(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"", "expected a verb: ay, bee or exec"},
        {"ya k -c F", "unknown verb ya (did you mean ay?)"},
        {"ay k", "thing ay: -c FILE is required: configuration file (JSON); see: latchwork thing "
                 "ay --help"},
        {"ay -c F", "KEY is missing; usage: latchwork thing ay KEY"},
        {"ay a b c -c F", "unexpected argument c"},
        {"ay k -c", "-c needs a value"},
        {"ay k --number", "--number needs a value"},
        {"ay k --number=10", "--number 10: expected a number from 0 to 9"},
        {"ay k --number -1", "--number -1: expected a number from 0 to 9"},
        {"ay k --number +1", "a number from"},
        {"ay k --number 99999999999999999999", "a number from"},
        {"ay k --duration 99ms", "expected a time from 100ms to 1h"},
        {"ay k --duration soon", "expected a time from 100ms to 1h"},
        {"ay k --rate 0", "messages per second"},
        {"ay k --word o", "expected one, three or on"},
        {"ay k --list 1 --list 2 --list 3", "--list is given too often; expected at most 2 times"},
        {"ay k --set a", "expected PATH=VALUE, as in lock.ttl_ms=5000"},
        {"ay k --flag=1", "--flag takes no value"},
        {"ay k --help=1", "--help takes no value"},
        {"ay k --numbre 1", "unknown option --numbre; did you mean --number?"},
        {"ay k -fq", "unknown option -q"},
        {"bee -c F --word on", "thing bee: unknown option --word: it belongs to ay"},
        {"bee -c F --wrod on", "unknown option --wrod; see"},
        {"exec k -c F", "the command is missing; put it after --"},
        {"exec k cmd -c F", "unexpected argument cmd; put the command after --"},
        {"bee -c F -- x", "unexpected argument --"},
    };
    struct values v;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = parse(cases[i].line, &v);
        if (status != CLI_USAGE || !strstr(said, cases[i].says))
            fail_msg("%s: status %d, said %s", cases[i].line, status, said);
    }
}

/* Any command line must be parsed, or be refused with a reason. The parser must never write more
 * values to an array than fit. */
static void test_random_lines(void **state) {
    (void)state;
    static const char *const parts[] = {
        "ay",     "bee",      "exec",       "--",     "-",     "-c",  "-f",      "-ft",
        "-x",     "--number", "--number=3", "--list", "--set", "a=1", "--short", "--word=on",
        "--word", "--rate",   "--dur",      "1h",     "k",     "9",   "--",      "--config=F"};
    unsigned seed = 1;
    for (int run = 0; run < 20000; run++) {
        char line[400] = "";
        int n = rand_r(&seed) % 12;
        for (int i = 0; i < n; i++) {
            strcat(line, parts[(unsigned)rand_r(&seed) % (sizeof parts / sizeof *parts)]);
            strcat(line, " ");
        }
        struct values v;
        int status = parse(line, &v);
        assert_true(v.n_list <= LIST_MAX);
        if (status == GO_ON)
            assert_true(v.cli.verb && v.cli.config && v.cli.n_words >= v.cli.verb->min_words);
    }
}

/* Checks that the program's own tables of commands have the properties on which the parser and
 * the generated pages rely. */
static void test_tables(void **state) {
    (void)state;
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *c = cli_commands[i];
        assert_true(c->name && c->summary && strlen(c->name) < CLI_NAME_MAX);
        if (!c->run) continue;
        assert_true(c->about && c->options && c->statuses &&
                    c->args_size >= sizeof(struct cli_args));
        for (const struct cli_option *o = c->options; o->name; o++) {
            assert_true(strlen(o->name) < CLI_NAME_MAX && o->help);
            assert_int_equal(o->metavar == NULL, o->kind == CLI_FLAG);
            assert_true(o->at >= offsetof(struct cli_args, config) && o->at < c->args_size &&
                        o->count < c->args_size);
            assert_true(o->help[strlen(o->help) - 1] != '.');
            for (const struct cli_option *other = c->options; other != o; other++) {
                assert_string_not_equal(o->name, other->name);
                assert_true(!o->brief || o->brief != other->brief);
            }
        }
        for (size_t k = 0; k < c->n_verbs; k++)
            assert_true(c->verbs[k].bit && !(c->verbs[k].bit & (c->verbs[k].bit - 1)) &&
                        c->verbs[k].help);
    }
}

static void test_duration_text(void **state) {
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {{0, "0ms"},     {100, "100ms"},  {1500, "1500ms"}, {2000, "2s"},
                 {90000, "90s"}, {3600000, "1h"}, {172800000, "2d"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[OPS_DURATION_TEXT];
        assert_string_equal(ops_duration_text(cases[i].ms, text), cases[i].text);
        assert_int_equal(ops_duration_ms(text), cases[i].ms);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_random_lines),  cmocka_unit_test(test_tables),
        cmocka_unit_test(test_duration_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
