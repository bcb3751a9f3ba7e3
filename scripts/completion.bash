# SPDX-License-Identifier: Apache-2.0
# Bash completion for latchwork.
_latchwork() {
    local verb= word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= i
    local commands="run dev check queue dead lock handler top ledger"
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -- ]] && return
        [[ ${COMP_WORDS[i]} == -* ]] && continue
        if [[ -z $command ]]; then command=${COMP_WORDS[i]}; elif [[ -z $verb ]]; then verb=${COMP_WORDS[i]}; fi
    done
    case $before in
    -c | --config | --backup)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    --workers | --rate | --interval | --filter | --redis | --ttl | --wait | --kill-after | --match | --limit | --set-ttl) return ;;
    --key | --topic | --partition | --older-than | --attempts | --where | --reason | --error | --from | --to | --to-topic | --resume | --over) return ;;
    --sort)
        mapfile -t COMPREPLY < <(compgen -W "age size waiting tries" -- "$word")
        return
        ;;
    --set)
        compopt -o nospace 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -W "$(_latchwork_paths)" -- "$word")
        return
        ;;
    esac
    case $command in
    '') mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$word") ;;
    run) mapfile -t COMPREPLY < <(compgen -W "-c --config --workers --drain --set --json --help" -- "$word") ;;
    dev) mapfile -t COMPREPLY < <(compgen -W "--workers --rate --keep --demo --help" -- "$word") ;;
    top) mapfile -t COMPREPLY < <(compgen -W "-c --config --set --interval --filter --sort --once --json --help" -- "$word") ;;
    ledger) mapfile -t COMPREPLY < <(compgen -W "-c --config --set --json --help" -- "$word") ;;
    check) mapfile -t COMPREPLY < <(compgen -W "-c --connect --json --help" -- "$word") ;;
    queue | dead) mapfile -t COMPREPLY < <(compgen -W "$(_latchwork_ops "$command" "$verb")" -- "$word") ;;
    lock) mapfile -t COMPREPLY < <(compgen -W "$(_latchwork_lock "$verb")" -- "$word") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "--help" -- "$word") ;;
    esac
}

_latchwork_lock() { # VERB
    local every="-c --config --set --redis --plain --help"
    case $1 in
    exec) echo "$every --ttl --wait --kill-after --paused --" ;;
    ls) echo "$every --json --match --limit --without-ttl" ;;
    show) echo "$every --json --set-ttl --execute" ;;
    break) echo "$every --json --execute" ;;
    *) echo "exec ls show break --help" ;;
    esac
}

_latchwork_ops() { # NOUN VERB
    local every="-c --config --set --json --help" lanes="--key --match --topic --partition --older-than --attempts"
    local job="--execute --limit --rate --stop-on-error --resume" dead="--reason --error --from --to --where"
    case "$1 $2" in
    "queue ls") echo "$every $lanes --sort --reverse --limit" ;;
    "queue show") echo "$every --raw --limit" ;;
    "queue pause" | "queue resume") echo "$every $lanes --execute" ;;
    "queue export") echo "$every $lanes --where --limit" ;;
    "queue stats") echo "$every --over --limit" ;;
    "queue replay") echo "$every $job --key --match --topic --partition --from --to --where --again --to-topic --try" ;;
    "queue drop") echo "$every $lanes $job --where --backup" ;;
    "queue import") echo "$every $job --again" ;;
    "queue audit") echo "$every --limit" ;;
    "dead ls" | "dead export") echo "$every $lanes $dead --limit" ;;
    "dead show") echo "$every --raw" ;;
    "dead replay") echo "$every $lanes $dead $job --to-topic --try" ;;
    "dead drop") echo "$every $lanes $dead $job --backup" ;;
    "dead edit") echo "$every" ;;
    "queue "*) echo "ls show pause resume export import replay drop stats audit --help" ;;
    *) echo "ls show replay edit drop export --help" ;;
    esac
}

# The values that people override most; any path of the configuration will do.
_latchwork_paths() {
    printf '%s=\n' name workers kafka.topics redis.url redis.shards key.from key.missing lock.ttl_ms lock.max_run \
        queue.max_waiting queue.on_busy retry.max_attempts retry.backoff_ms retry.backoff_max_ms retry.order \
        dead.to dedup.id dedup.window_s handler.type handler.threads handler.processes handler.timeout_ms \
        shutdown.grace_ms http.listen http.token log.level log.format log.keys
}

complete -F _latchwork latchwork
