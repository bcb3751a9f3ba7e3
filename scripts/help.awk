# SPDX-License-Identifier: Apache-2.0
# Prints what `make help` says, from the makefiles that are its arguments: a line `##@ GROUP` begins
# a group, a line `## TARGET: TEXT` describes a target. Groups stand in the order in which they
# first appear, the targets of a group in that of the alphabet.
/^##@ / {
    group = substr($0, 5)
    if (!(group in place)) {
        place[group] = ++n_groups
        title[n_groups] = group
    }
    next
}
/^## [a-z0-9-]+: / {
    split($2, name, ":")
    here = place[group]
    i = ++n[here]
    while (i > 1 && target[here, i - 1] > name[1]) {
        target[here, i] = target[here, i - 1]
        text[here, i] = text[here, i - 1]
        i--
    }
    target[here, i] = name[1]
    text[here, i] = substr($0, 5 + length($2))
}
END {
    for (g = 1; g <= n_groups; g++) {
        printf "\n%s\n", title[g]
        for (i = 1; i <= n[g]; i++) printf "  %-12s %s\n", target[g, i], text[g, i]
    }
}
