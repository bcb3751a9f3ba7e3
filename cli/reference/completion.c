/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the completion scripts for bash and zsh, which the build makes and installs. The two
 * shells request completions in different ways, but both scripts contain the same tables. */
#include "cli/commands.h"
#include "cli/reference/private.h"
#include "config/option.h"

#include <string.h>

static void all_verbs(const struct cli_command *c, struct lw_buf *out) {
    for (size_t i = 0; i < c->n_verbs; i++) lw_buf_addf(out, "%s ", c->verbs[i].name);
}

static void options(const struct cli_command *c, const struct cli_verb *v, struct lw_buf *out) {
    for (const struct cli_option *o = c->options; o->name; o++) {
        if (!cli_has(c, o) || !cli_takes(v, o->verbs)) continue;
        if (o->brief) lw_buf_addf(out, "-%c ", o->brief);
        lw_buf_addf(out, "--%s ", o->name);
    }
    lw_buf_addf(out, "--help%s", v && v->tail ? " --" : "");
}

static void command(const struct cli_command *c, struct lw_buf *out) {
    for (size_t i = 0; i < c->n_verbs; i++) {
        lw_buf_addf(out, "    \"%s %s\") echo \"", c->name, c->verbs[i].name);
        options(c, &c->verbs[i], out);
        lw_buf_addf(out, "\" ;;\n");
    }
    lw_buf_addf(out, "    \"%s \"*) echo \"", c->name);
    all_verbs(c, out);
    if (c->n_verbs || !c->run)
        lw_buf_addf(out, "--help");
    else
        options(c, NULL, out);
    lw_buf_addf(out, "\" ;;\n");
}

/* Writes how the shell completes the value of an option: with file names, with paths of the
 * configuration, with fixed words, or not at all. */
static void value(const struct cli_command *c, const struct cli_option *o, struct lw_buf *out) {
    if (o->kind == CLI_FLAG || !cli_has(c, o)) return;
    lw_buf_addf(out, "    \"%s --%s\"", c->name, o->name);
    if (o->brief) lw_buf_addf(out, " | \"%s -%c\"", c->name, o->brief);
    lw_buf_addf(out, ") echo \"");
    if (strcmp(o->metavar, "FILE") == 0)
        lw_buf_addf(out, "FILE");
    else if (o->kind == CLI_SET && !o->path)
        lw_buf_addf(out, "PATH");
    else if (o->kind == CLI_WORD)
        for (const char *p = o->metavar; *p; p++) lw_buf_addf(out, "%c", *p == '|' ? ' ' : *p);
    else
        lw_buf_addf(out, "-");
    lw_buf_addf(out, "\" ;;\n");
}

static void names(struct lw_buf *out) {
    for (size_t i = 0, n = 0; i < cli_n_commands; i++)
        if (!cli_commands[i]->hidden)
            lw_buf_addf(out, "%s%s", n++ ? " " : "", cli_commands[i]->name);
}

static void paths(struct lw_buf *out) {
    for (size_t i = 0; i < lw_n_options; i++)
        lw_buf_addf(out, " \\\n        %s", lw_options[i].path);
}

static const char bash_head[] = "# SPDX-License-Identifier: Apache-2.0\n"
                                "# Bash completion for latchwork, made of the tables in cli/.\n"
                                "_latchwork() {\n"
                                "    local verb= word=${COMP_WORDS[COMP_CWORD]} "
                                "before=${COMP_WORDS[COMP_CWORD - 1]} command= i values\n";
static const char bash_body[] =
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        [[ ${COMP_WORDS[i]} == -- ]] && return\n"
    "        [[ ${COMP_WORDS[i]} == -* || -n $(_latchwork_values \"$command\" \"${COMP_WORDS[i - "
    "1]}\") ]] && continue\n"
    "        if [[ -z $command ]]; then command=${COMP_WORDS[i]}; elif [[ -z $verb ]]; then "
    "verb=${COMP_WORDS[i]}; fi\n"
    "    done\n"
    "    if [[ -z $command ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$commands --help --version\" -- \"$word\")\n"
    "        return\n"
    "    fi\n"
    "    values=$(_latchwork_values \"$command\" \"$before\")\n"
    "    case $values in\n"
    "    '') mapfile -t COMPREPLY < <(compgen -W \"$(_latchwork_options \"$command\" \"$verb\")\" "
    "-- \"$word\") ;;\n"
    "    -) return ;;\n"
    "    FILE)\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
    "        ;;\n"
    "    PATH)\n"
    "        compopt -o nospace 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$(_latchwork_paths)\" -- \"$word\")\n"
    "        ;;\n"
    "    *) mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\") ;;\n"
    "    esac\n"
    "}\n";
static const char zsh_head[] = "#compdef latchwork\n"
                               "# SPDX-License-Identifier: Apache-2.0\n"
                               "# Zsh completion for latchwork, made of the tables in cli/.\n"
                               "_latchwork() {\n"
                               "    local verb= word command= values\n"
                               "    integer i\n"
                               "    local -a commands\n"
                               "    commands=(\n";
static const char zsh_body[] =
    "    )\n"
    "    for ((i = 2; i < CURRENT; i++)); do\n"
    "        word=${words[i]}\n"
    "        [[ $word == -- ]] && return\n"
    "        [[ $word == -* || -n $(_latchwork_values \"$command\" \"${words[i - 1]}\") ]] && "
    "continue\n"
    "        if [[ -z $command ]]; then command=$word; elif [[ -z $verb ]]; then verb=$word; fi\n"
    "    done\n"
    "    if [[ -z $command ]]; then\n"
    "        _describe command commands\n"
    "        compadd -- --help --version\n"
    "        return\n"
    "    fi\n"
    "    values=$(_latchwork_values \"$command\" \"${words[CURRENT - 1]}\")\n"
    "    case $values in\n"
    "    '') compadd -- ${=$(_latchwork_options \"$command\" \"$verb\")} ;;\n"
    "    -) return ;;\n"
    "    FILE) _files ;;\n"
    "    PATH) compadd -S '' -- ${=$(_latchwork_paths)} ;;\n"
    "    *) compadd -- ${=values} ;;\n"
    "    esac\n"
    "}\n";
static const char between_options[] =
    "\n"
    "# COMMAND VERB: the options, or the verbs if there is none yet\n"
    "_latchwork_options() {\n"
    "    case \"$1 $2\" in\n";
static const char between[] = "    esac\n"
                              "}\n"
                              "\n"
                              "# COMMAND OPTION: FILE, PATH (of the configuration), words, or - if "
                              "nothing can be proposed; nothing: no value follows\n"
                              "_latchwork_values() {\n"
                              "    case \"$1 $2\" in\n";

static void tables(struct lw_buf *out) {
    lw_buf_addf(out, "%s", between_options);
    for (size_t i = 0; i < cli_n_commands; i++)
        if (!cli_commands[i]->hidden) command(cli_commands[i], out);
    lw_buf_addf(out, "%s", between);
    for (size_t i = 0; i < cli_n_commands; i++)
        for (const struct cli_option *o = cli_commands[i]->options;
             o && o->name && !cli_commands[i]->hidden; o++)
            value(cli_commands[i], o, out);
    lw_buf_addf(out, "    esac\n}\n\n_latchwork_paths() {\n    printf '%%s=\\n'");
    paths(out);
    lw_buf_addf(out, "\n}\n\n");
}

void reference_completion_bash(struct lw_buf *out) {
    lw_buf_addf(out, "%s    local commands=\"", bash_head);
    names(out);
    lw_buf_addf(out, "\"\n%s", bash_body);
    tables(out);
    lw_buf_addf(out, "complete -F _latchwork latchwork\n");
}

void reference_completion_zsh(struct lw_buf *out) {
    lw_buf_addf(out, "%s", zsh_head);
    for (size_t i = 0; i < cli_n_commands; i++) {
        const struct cli_command *c = cli_commands[i];
        if (c->hidden) continue;
        lw_buf_addf(out, "        '%s:", c->name);
        for (const char *p = c->summary; *p; p++)
            lw_buf_addf(out, "%s%c", *p == ':' ? "\\" : "", *p);
        lw_buf_addf(out, "'\n");
    }
    lw_buf_addf(out, "%s", zsh_body);
    tables(out);
    lw_buf_addf(out, "_latchwork \"$@\"\n");
}
