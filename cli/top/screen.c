/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the terminal of `latchwork top`: ncurses draws the lines that cli/top/frame.c makes, and
 * reads keys. */
#include "base/clock.h"
#include "cli/top/private.h"

#include <ctype.h>
#include <errno.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INPUT_MAX = 128, ESCAPE = 27 };
enum mode { LOOKING, FILTERING, ASKING };

struct screen {
    struct top *t;
    struct top_view v;
    struct top_frame f;
    enum mode mode;
    char input[INPUT_MAX];
    size_t n_input;
    /* `lane` is the name of the marked lane or, while the screen shows a question, of the lane that
     * the question is about. */
    struct lw_buf lane;
    int capital; /* the capital letter of the action that waits for the user's answer */
    struct lw_buf said, footer;
    bool stale, quit;
};

static volatile sig_atomic_t ended;
static void on_end(int sig) {
    (void)sig;
    ended = 1;
}

/* --- drawing ---------------------------------------------------------------------------------- */

/* Writes a text. If the terminal's locale uses one byte per character, each character outside ASCII
 * is written as '?'. */
static void put(const char *text) {
    if (MB_CUR_MAX > 1) {
        addstr(text);
        return;
    }
    for (; *text; text++)
        if (((unsigned char)*text & 0xc0) != 0x80)
            addch((unsigned char)*text < 0x80 ? (chtype)(unsigned char)*text : (chtype)'?');
}

static attr_t look_of(enum top_style style) {
    switch (style) {
    case TOP_BAR: return A_REVERSE;
    case TOP_HEAD: return A_BOLD | A_UNDERLINE;
    case TOP_SELECTED: return A_REVERSE | A_BOLD;
    case TOP_WARN: return A_BOLD;
    default: return A_NORMAL;
    }
}

/* Finds the marked lane again by its name, because a refresh may have changed its place in the
 * list. */
static void find_marked(struct screen *s) {
    struct top *t = s->t;
    for (size_t i = 0; s->lane.n && i < t->n_lane; i++)
        if (lw_bytes_eq(t->lane[i].l.name, lw_bytes(s->lane.p, s->lane.n))) s->v.selected = i;
}

static void mark(struct screen *s) {
    s->lane.n = 0;
    if (s->v.selected >= s->t->n_lane) return;
    struct lw_bytes name = s->t->lane[s->v.selected].l.name;
    lw_buf_add(&s->lane, name.p, name.n);
}

static void make_footer(struct screen *s) {
    s->footer.n = 0;
    if (s->mode == FILTERING)
        lw_buf_addf(&s->footer, "filter: %s_   Enter applies it, Esc keeps the old one%c", s->input,
                    0);
    s->v.footer = s->mode == LOOKING ? NULL : s->footer.p;
    if (s->mode != ASKING) return;
    struct lw_buf key = {0};
    ops_text(&key, lw_bytes(s->lane.p, s->lane.n), 40);
    const char *what = s->capital == 'P'   ? "Pause"
                       : s->capital == 'R' ? "Resume"
                       : s->capital == 'B' ? "Break the lock of"
                                           : "Drop the waiting messages of";
    lw_buf_addf(&s->footer, "%s %.*s? y/n%c", what, (int)key.n, key.p ? key.p : "", 0);
    s->v.footer = s->footer.p;
    lw_buf_free(&key);
}

static void draw(struct screen *s) {
    getmaxyx(stdscr, s->v.height, s->v.width);
    if (s->said.n) s->v.message = s->said.p;
    make_footer(s);
    top_draw(s->t, &s->v, &s->f);
    for (size_t i = 0; i < s->f.n && (int)i < s->v.height; i++) {
        attr_t look = look_of(s->f.line[i].style);
        move((int)i, 0);
        clrtoeol();
        attron(look);
        put(s->f.line[i].text);
        attroff(look);
    }
    refresh();
}

/* --- keys ------------------------------------------------------------------------------------- */

static void say(struct screen *s, const char *text) {
    s->said.n = 0;
    lw_buf_add(&s->said, text, strlen(text) + 1);
}

static void act(struct screen *s) {
    struct lw_bytes lane = lw_bytes(s->lane.p, s->lane.n);
    s->said.n = 0;
    switch (s->capital) {
    case 'P': top_pause(s->t, lane, false, &s->said); break;
    case 'R': top_pause(s->t, lane, true, &s->said); break;
    case 'B': top_break(s->t, lane, &s->said); break;
    default: top_drop(s->t, lane, &s->said); break;
    }
    lw_buf_add(&s->said, "", 1);
    s->stale = true;
}

static void answer(struct screen *s, int key) {
    s->mode = LOOKING;
    if (key == 'y')
        act(s);
    else
        say(s, "nothing was changed");
}

static void type(struct screen *s, int key) {
    if (key == '\n' || key == '\r' || key == KEY_ENTER) {
        s->mode = LOOKING;
        s->lane.n = 0;
        s->v.selected = s->v.first = 0;
        top_set_filter(s->t, s->input);
        s->stale = true;
    } else if (key == ESCAPE) {
        s->mode = LOOKING;
    } else if (key == KEY_BACKSPACE || key == 127 || key == '\b') {
        while (s->n_input && ((unsigned char)s->input[s->n_input - 1] & 0xc0) == 0x80) s->n_input--;
        if (s->n_input) s->n_input--;
        s->input[s->n_input] = '\0';
    } else if (key >= ' ' && key < 256 && key != 127 && s->n_input + 1 < INPUT_MAX) {
        s->input[s->n_input++] = (char)key;
        s->input[s->n_input] = '\0';
    }
}

static void step(struct screen *s, long by) {
    long at = (long)s->v.selected + by;
    s->v.selected = at < 0 || !s->t->n_lane     ? 0
                    : (size_t)at < s->t->n_lane ? (size_t)at
                                                : s->t->n_lane - 1;
    mark(s);
}

static void look(struct screen *s, int key) {
    switch (key) {
    case 'q': s->quit = true; break;
    case '?':
    case 'h': s->v.help = true; break;
    case ' ': s->stale = true; break;
    case 's':
        top_set_sort(s->t, (s->t->sort + 1) % TOP_SORTS);
        s->stale = true;
        break;
    case '/':
        s->mode = FILTERING;
        s->n_input = 0;
        s->input[0] = '\0';
        break;
    case KEY_DOWN:
    case 'j': step(s, 1); break;
    case KEY_UP:
    case 'k': step(s, -1); break;
    case KEY_NPAGE: step(s, 10); break;
    case KEY_PPAGE: step(s, -10); break;
    case KEY_HOME: step(s, -TOP_LANES); break;
    case KEY_END: step(s, TOP_LANES); break;
    case 'P':
    case 'R':
    case 'B':
    case 'D':
        mark(s);
        s->capital = key;
        if (s->lane.n)
            s->mode = ASKING;
        else
            say(s, "no lane is marked");
        break;
    default: break;
    }
}

static void take_key(struct screen *s, int key) {
    if (key == KEY_RESIZE) {
        erase();
        clearok(stdscr, TRUE);
        return;
    }
    if (s->v.help)
        s->v.help = false;
    else if (s->mode == FILTERING)
        type(s, key);
    else if (s->mode == ASKING)
        answer(s, key);
    else {
        /* the message is cleared, because the user has read it before typing a key */
        s->said.n = 0;
        s->v.message = NULL;
        look(s, key);
    }
}

/* Waits for a key until `due_ms` at the latest, and handles all keys that were typed. */
static void take_keys(struct screen *s, int64_t due_ms) {
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    int64_t left = due_ms - lw_boot_ms();
    int n = poll(&p, 1, left > 0 ? (int)left : 0), key, keys = 0;
    while (!s->quit && keys < 100 && (key = getch()) != ERR) {
        keys++;
        take_key(s, key);
    }
    /* poll() reported an event although no key was typed, so the terminal was closed */
    if (n > 0 && !keys && (p.revents & (POLLHUP | POLLERR | POLLNVAL))) s->quit = true;
}

static void loop(struct screen *s) {
    int64_t due = 0;
    while (!s->quit && !ended) {
        if (s->stale || lw_boot_ms() >= due) {
            top_refresh(s->t);
            due = lw_boot_ms() + s->v.interval_ms;
            s->stale = false;
            if (s->mode == LOOKING) find_marked(s);
        }
        draw(s);
        take_keys(s, due);
    }
}

int top_screen(struct top *t, int64_t interval_ms) {
    struct screen s = {.t = t, .v = {.interval_ms = interval_ms}};
    struct sigaction end = {.sa_handler = on_end};
    /* sigaction() must be called before ncurses starts, because ncurses leaves existing signal
     * handlers unchanged */
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    if (!terminal) {
        fprintf(
            stderr,
            "latchwork top: cannot draw on this terminal (TERM=%s); use --once for plain text\n",
            getenv("TERM") ? getenv("TERM") : "");
        return OPS_FAILED;
    }
    cbreak();
    noecho();
    nonl();
    curs_set(0);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(50);
    loop(&s);
    endwin();
    delscreen(terminal);
    top_frame_free(&s.f);
    lw_buf_free(&s.lane);
    lw_buf_free(&s.said);
    lw_buf_free(&s.footer);
    return 0;
}
