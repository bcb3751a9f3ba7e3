#include "tools/ops_out_of_lane.h"
int ops_to_topic(struct ops *o, ops_each_fn *each) { (void)each; return lw_fail(&o->err, "--to-topic: not in this version") ? OPS_FAILED : 0; }
int ops_try(struct ops *o, ops_each_fn *each) { (void)each; return lw_fail(&o->err, "--try: not in this version") ? OPS_FAILED : 0; }
