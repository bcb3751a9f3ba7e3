/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the situations that are built by hand (scenes/scene.h).
 * usage: sim_scenes [CASE…] */
#include "base/log.h"
#include "tests/sim/scenes/scene.h"

#include <string.h>

static const struct {
    const char *name;
    bool (*run)(void);
} cases[] = {
#define SCENE(name) {#name, name},
    SCENES(SCENE)
#undef SCENE
};
enum { CASES = sizeof cases / sizeof cases[0] };

static bool run_case(int i) {
    scene = scene_new();
    scene.store = store_open(1);
    scene.now_ms = 1000000;
    scene.random = 7;
    bool good = cases[i].run();
    if (scene.lw) end_worker();
    store_close(scene.store);
    printf("[  %s ] %s\n", good ? "     OK" : "FAILED ", cases[i].name);
    return good;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    lw_log_setup(LW_LOG_OFF, false, "scenes");
    for (int i = 0; i < CASES; i++) {
        bool wanted = argc == 1;
        for (int k = 1; k < argc; k++) wanted |= !strcmp(argv[k], cases[i].name);
        if (wanted) run_case(i) ? passed++ : failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
