// Reduces the privileges of the process.
#pragma once

namespace gpunbd::server {

// From now on no program that this thread, or a thread that it starts, executes gains privileges,
// for example by a set-user-ID bit.
void give_up_new_privileges();

// Keeps the data of clients out of core files and crash collectors. Also holds for child processes.
void keep_memory_out_of_core_dumps();

}  // namespace gpunbd::server
