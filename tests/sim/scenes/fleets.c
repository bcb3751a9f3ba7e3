/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes about another fleet in the consumer group: commits that are its own, those of a rival, and
 * those that only look like a rival's. */
#include "tests/sim/scenes/scene.h"

/* Shows the worker a commit of its consumer group: `fleet` has committed `offset` in partition
 * 2. */
static void look(const char *fleet, int64_t offset) {
    lw_worker_looked(scene.lw, &(struct lw_group_offset){"t", 2, offset, fleet});
}

#define YOUNGER "ffffffffffffffff"
#define OLDER "0000000000000001"

static bool fleet_said(bool wanted) {
    bool said = scene.lw->rival.said_ms > 0;
    if (said != wanted) printf("the other fleet was %s\n", said ? "told of" : "not told of");
    return said == wanted;
}

/* The younger of two fleets makes only one commit and then stops. The older fleet must still report
 * this commit after a few more looks at the commits of the group. */
bool a_younger_fleet_seen_once(void) {
    begin_worker("a-1");
    rounds(QUARANTINE);
    look(scene.lw->fleet, 10);
    look(YOUNGER, 20);
    rounds(LOOK);
    look(YOUNGER, 20);
    bool good = fleet_said(false);
    rounds(2 * LOOK);
    look(scene.lw->fleet, 30);
    good = fleet_said(true) && good && !scene.stopped;
    end_worker();
    return good;
}

/* A commit may look like that of a younger fleet although no such fleet exists. The test covers two
 * cases. In the first, the commit existed before the worker looked for the first time. In the
 * second, Redis was wiped, and the worker's own fleet committed in a new epoch of which the worker
 * has not heard yet. */
bool no_younger_fleet(void) {
    begin_worker("a-1");
    rounds(QUARANTINE);
    look(YOUNGER, 20);
    rounds(3 * LOOK);
    look(YOUNGER, 20);
    bool good = fleet_said(false);
    look(YOUNGER, 30);
    store_flushall(scene.store);
    rounds(3 * LOOK);
    look(YOUNGER, 40);
    good = fleet_said(false) && good;
    end_worker();
    return good;
}

/* The younger of two fleets must stop after it has seen three times, with enough time in between,
 * that the commits of the older fleet have advanced. */
bool an_older_fleet(void) {
    begin_worker("a-1");
    rounds(QUARANTINE);
    bool good = true;
    for (int i = 0; i <= 3; i++) {
        good = good && !scene.stopped;
        look(OLDER, 10 + i);
        rounds(3 * LOOK / 2);
        look(OLDER, 10 + i);
    }
    good = good && scene.stopped == LW_EXIT_REFUSED;
    end_worker();
    return good;
}

/* Redis has failed over, and its old master still serves a worker of the fleet. A worker that knew
 * none of the epochs before, because it started after the failover, must not take that worker's
 * commits for those of another fleet, and stop. */
bool an_epoch_before_the_failover(void) {
    char before[LW_FLEET + 1];
    begin_worker("a-1");
    rounds(QUARANTINE);
    snprintf(before, sizeof before, "%s", scene.lw->fleet);
    end_worker();
    store_promote(scene.store);
    for (int k = 0; k < 2; k++) { /* the second worker joins the epoch that the first one began */
        begin_worker(k ? "c-1" : "b-1");
        rounds(QUARANTINE);
        bool built = strcmp(before, scene.lw->fleet) < 0;
        for (int i = 0; i <= 5; i++) {
            look(before, 10 * (k + 1) + i);
            rounds(3 * LOOK / 2);
        }
        if (!built || scene.stopped) printf("%s\n", built ? "it stopped" : "it was not built");
        end_worker();
        if (!built || scene.stopped) return false;
    }
    return true;
}
