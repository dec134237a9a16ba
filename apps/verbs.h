// The verbs of `forebay`, by kind. Each function adds its verbs to the command line; a verb's
// options live in a struct that its function shares with the parser.
#pragma once

#include "cli.h"

namespace forebay {

void add_server_verbs(Cli& cli);  // start, stop, status
void add_name_verbs(Cli& cli);    // ls, stat, rm, mkdir, mv, ln
void add_data_verbs(Cli& cli);    // cat, put, get
void add_about_verbs(Cli& cli);   // config, version
void add_key_verbs(Cli& cli);     // key
void add_demo_verbs(Cli& cli);    // demo
void add_bench_verbs(Cli& cli);   // bench
void add_attr_verbs(Cli& cli);    // attr
void add_run_verbs(Cli& cli);     // run
void add_doctor_verbs(Cli& cli);  // doctor
void add_lock_verbs(Cli& cli);    // lock
void add_mount_verbs(Cli& cli);   // mount, umount

}  // namespace forebay
