#include "tools/cmd_queue.h"
#include "tools/ops.h"
int queue_replay(struct ops *o) { (void)o; return 2; }
int queue_drop(struct ops *o) { (void)o; return 2; }
int queue_import(struct ops *o) { (void)o; return 2; }
