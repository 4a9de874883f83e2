// What a process that serves strangers has no use for.
#pragma once

namespace gpunbd::server {

// From now on no program that this thread, and those that it starts, may run gains privileges by
// being set-user-ID or the like.
void give_up_new_privileges();

// What clients have stored is not to end in a file or in a crash collector. Also for child
// processes.
void keep_memory_out_of_core_dumps();

}  // namespace gpunbd::server
